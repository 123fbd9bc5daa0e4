"""How the fused ranking's weights were learnt: `corpus` reads what the database indexed, `signals` scores it, `train` fits."""
