"""What scripts/import-torch and scripts/export-data are made of; README.md says what each file does."""
