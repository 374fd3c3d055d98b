"""`python -m auditor` is `audit`."""

from auditor.cli import main

if __name__ == "__main__":
    main()
