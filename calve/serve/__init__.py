"""The server process: from the socket to the first line of the application, and back."""
