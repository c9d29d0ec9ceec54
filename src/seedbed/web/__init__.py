"""The page of `seedbed serve`: what the store holds, watched, compared and looked into from a browser."""
