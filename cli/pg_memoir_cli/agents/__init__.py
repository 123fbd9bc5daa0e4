"""Memory for coding agents by their hooks: `pg-memoir agents` and the hooks that it installs."""
