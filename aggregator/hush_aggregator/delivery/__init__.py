"""Exactly once over a broker that forgets: connections, ownership, recalls, closing and workers."""
