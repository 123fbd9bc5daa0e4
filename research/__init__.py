"""What is not the product: how the ranking was learnt, and other stores on the same conversations. README.md says how to run it."""
