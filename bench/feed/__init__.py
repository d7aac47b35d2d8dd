"""What subscribers cost: idle connections, commits that all of them hear of, and writes beside them."""
