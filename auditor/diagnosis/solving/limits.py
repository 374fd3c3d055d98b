"""The limits of the solver, each with the measurement behind it.

Measured on 2026-11-29 over 111 explanations: planted faults of 45 classes that transformers writes
(tests/support/fault_bench.py, faults_of_config.py) and pairs of published sizes
(tools/diagnosing/sizes.py). "Most" is the most that a complete solution used. "Spare" means that no
explanation changes with half of the limit or less.
"""

# --- one search for values of all keys -----------------------------------------------------------

SECONDS = 0.8  # processor time; most: 0.18
TREES = 600  # a BERT's tree takes a millisecond; most: 58
ROUNDS = 16  # steps of plain lengths and of single changes together; most: 12; with 4, 1 changes
CANDIDATES = 120  # single changes of one kind that a round tries; spare
SOLVED = 12  # single keys that are solved after plain lengths; spare
STARTS = 4  # repairs of an invalid config from which the search continues; spare
NAMES = 20_000  # stored names up to which layers are compared one by one; DeepSeek-V3 has 92,000
FEW = 2  # if a solution has at most this many keys, a single key is searched as well

# Share of unexpected tensors above which the files hardly store this class, and the processor time
# for such a class; share above which no values are tried. Spare: 0.25 and 0.7 change nothing.
OTHER_CLASS, OTHER_CLASS_SECONDS = 0.5, 0.25
NO_CLASS = 0.95

# --- the oracle: a search builds models, 50 ms or more each --------------------------------------

ORACLE_TREES = 24
ORACLE_TENSORS = 100_000  # of all its trees; and of all models that are probed
PROBED_KEYS = 32  # keys that are changed to find formulas
PROBED_MODELS = 48  # 20 ms or more for each
PROBED_LAYERS = 4  # depth of the models in which keys are changed
PROBED_ITEMS = 8  # the longest list of numbers whose items are changed

# --- keys that no shape determines, and other solutions ------------------------------------------

FLAG_SECONDS = 0.8  # processor time for flags that fit with further keys; a T5's take 0.1
FLAG_CHANGES = 48  # further changes that are tried after a flag is changed; spare
FLAG_KEYS = 2  # the most further keys that change with a flag if heads are implausibly wide
OTHERS = 12  # other solutions that are sought; spare
OTHER_TREES = 100  # trees that are built to find them; spare

# --- single values -------------------------------------------------------------------------------

SOLUTIONS = 24  # solutions of one equation for one key; a number of heads may be any divisor
LARGEST = 2**31  # upper bound of a key's value
ENUMERATED = 1024  # values tried one by one if a formula is neither linear nor increasing; spare
PRODUCTS = 8  # the most unknown products of one length; spare
ITEMS = 6  # items to choose from for a list by layer; spare
LAYERS = 2**12  # the most layers of a list
WIDEST_HEAD = 512  # of published models
