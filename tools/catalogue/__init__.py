"""Learn generated forms by probing what the oracle builds: `make catalogue`, docs/generated.md."""
