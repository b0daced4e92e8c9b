"""Request files: bytes become drafts of requests, or rejections with their place."""
