"""The figures: what Regista costs, beside what SQLite itself costs in the same run."""
