"""What we post to clients. It reads Events, and knows nothing of `webhooks.inbound`."""
