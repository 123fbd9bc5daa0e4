"""Files of all-MiniLM-L6-v2 (Apache License 2.0, by the Sentence Transformers team), in the folder model."""
