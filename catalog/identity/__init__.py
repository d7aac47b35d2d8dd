"""Who is calling and what each caller may do: principals, their secrets and roles, the tokens they carry."""
