"""Law 14 over the samples of picklescan, fickling, modelscan and modelaudit: `make scanners`.

Installs the four into an environment of their own, runs the test suites that their source packages
contain, and judges each pickle and each archive that the suites hold or write, together with the
names that the scanners warn of and the pickles that fickling injects calls into. No sample is
loaded: the judge is CPython's unpickler with every import recorded and none made. But a test suite
is a program of its authors; run this where you would run theirs.
"""
