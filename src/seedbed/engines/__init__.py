"""Where work happens; an engine receives the work as a function and knows nothing of models or stores."""
