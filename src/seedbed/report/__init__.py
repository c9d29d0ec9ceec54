"""What a reader gets: tables now; pages stand on them."""
