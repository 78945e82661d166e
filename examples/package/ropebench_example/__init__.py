"""A RoPE method and a task for ropebench."""
