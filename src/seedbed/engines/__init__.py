"""Where jobs run; an engine is given the work as a function and knows nothing of models or stores."""
