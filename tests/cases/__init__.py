"""Small programs drawn from public reports of failures, and what runs them: one process a case."""
