"""Changes over WebSocket: the protocol's messages, the limits of connections, the connections themselves."""
