"""The server process: start checks, uvicorn, and the Spark worker beside it."""
