"""Display: tables, pictures, progress and result files."""
