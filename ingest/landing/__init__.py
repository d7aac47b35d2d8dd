"""What is known of each table that changes land in: its settings, how far it has landed, the jobs at work.

It lives in the catalog's database, because a publish moves table pointers, watermarks and the end of a job in
one SQL transaction.
"""
