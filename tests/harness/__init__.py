"""What tests stand on: real components as child processes, and the server as a user starts it."""
