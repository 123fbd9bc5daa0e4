"""Memory for coding agents by their hooks: what `pg-memoir agents` installs, and what the hooks do."""
