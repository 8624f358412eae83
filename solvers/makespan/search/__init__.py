"""Local search: schedules in, better schedules out; nothing is proven here."""
