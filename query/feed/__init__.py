"""The change feed: server-sent events, WebSocket, long polling and webhooks, with the same tokens."""
