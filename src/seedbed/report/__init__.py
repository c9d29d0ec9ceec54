"""Results for readers: tables, JSON documents, figures, and the HTML report made of them."""
