"""What a person sees: messages, tables, progress, and streams that never fail. Writes to them."""
