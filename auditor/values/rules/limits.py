"""The limits of the rules about numbers, each with its measurement.

"Trained" are 1,467 matrices of 57 trained checkpoints in F32, BF16 and F16, if no others are named.
"""

# --- zeros and padded floats ----------------------------------------------------------------------

LEAST_ZEROS = 1024  # numbers of a sample that are all zero
LEAST_PADDED = 1024  # numbers whose lower halves are zero
LEAST_VARIED = 64  # different numbers of a sample: masks and norms have fewer
# The share of a tensor's numbers with zero lower halves: below 0.007 in trained F32 tensors, and
# 1/8 (0.12 measured) if they were F16.
PADDED_SHARE = 0.25
PADDED_BYTES = 0.1  # of all bytes: float32 norms of a bfloat16 model are far less

# --- magnitudes -----------------------------------------------------------------------------------

LEAST_PROFILED = 64  # numbers of a matrix; fewer show nothing
# Largest magnitude / the magnitude that nine tenths do not exceed: at most 560 if trained.
OUTLIER = 2.0**15
LEAST_OUTLIER = 1e4  # F16 ends at 65,504
FLOOD = 0.1  # the share of subnormal numbers
LEAST_ROW = 8  # numbers of a row: of a convolution, it is a kernel of two channels
# The spread (standard deviation) of log2 |x|, in binades: 0.98 to 3.7 if trained, 40 to 58 if
# channels died, and at least 20 without the subnormal numbers if these are a tenth (F32, BF16).
ORDINARY_SPREAD = (0.9, 4.5)
# BF16 read as F16 has a spread of at most 0.43 (9.6 if channels died), F16 read as BF16 of 7.8
# or more.
MISLABELED_SPREAD = (0.6, 6.0)
# What nine tenths of a BF16 matrix do not exceed: 2**-5.5 to 2**1.2 in 38 matrices of real
# networks with dead channels, and below 2**-10 in 92 % of 3,466 that are F16.
ORDINARY_LARGE = (2.0**-10, 2.0**8)
LEAST_PEAK = 2.5  # largest / root mean square; BF16 of dead channels read as F16 has up to 5
LEAST_SIGN = 0.1  # the share of numbers of one sign: factors near 1 have a small spread, too
LEAST_MISLABELED = 256  # numbers of a matrix

# --- constants and blocks of zeros ----------------------------------------------------------------

LEAST_SIDE = 8  # a blur kernel is a constant, or equal rows, and has shorter sides
LEAST_UNIFORM = 256  # numbers of a sample
LEAST_EQUAL_ROWS = 3  # of rows that are all equal; two token types may be
SUSPICIOUS_ZEROS = 0.125  # the share of zeros in a sample from which a matrix is read again
# The share of zero rows, columns or scales. The largest share of zeros in a trained matrix was
# 47 %, in the F16 copy of a network in which weight decay had driven channels to zero.
ZERO_SHARE = 0.25
# The least mean length of runs of zero rows or columns, times the mean length of scattered ones.
# Dead channels are scattered: their largest mean length was 1.6. A block is one run, or a few.
ZERO_RUN = 4
LEAST_SCALES = 16

# --- initial values -------------------------------------------------------------------------------

# Standard errors of mean, deviation and kurtosis of a head: 4 in all but one of 10,000 draws each.
HEAD_SIGMAS = 4.0
# Standard errors of the worst of six statistics of a matrix: at most 3.6 for each of 474 fresh
# matrices of 20 architectures, and 28 or more for each of 63 matrices of published checkpoints
# (F32, the first 131,072 numbers). 300 steps of training leave some matrices below 3.6.
MATRIX_SIGMAS = 5.0
ROUNDED = 0.002  # relative change of the deviation by 16-bit rounding
LEAST_OF_HEAD = 32  # numbers of a head; fewer show nothing
LEAST_OF_MATRIX = 256  # likewise of a matrix
LEAST_MATRICES = 2  # of a layer
# Numbers of an expert. One of 12,288 numbers, trained for 140 steps, was still like a fresh one.
LEAST_OF_EXPERT = 24_000
FAR = 0.1  # the median distance of a body's deviations from the initializer's, as a share

# --- adapters -------------------------------------------------------------------------------------

LEAST_MODULES = 3  # of a sample: the first, the middle and the last layer have one each
# The share of a tower's modules. Training with `clip_skip` leaves those of one layer of 12 idle.
IDLE = 0.3
LEAST_OF_FACTOR = 64  # numbers of a factor, if they are not all

# --- rows and layers ------------------------------------------------------------------------------

LEAST_OF_EMBEDDING = 16  # rows, and numbers of a row
# The distance of a row from the mean, as a share of the median distance. resize_token_embeddings
# leaves 3e-5, and rounding to bfloat16 at most 0.002; in 213 trained embeddings the least was 0.08,
# of a padding row, and 0.25 of another.
MEAN_ROW = 0.005
CLOSE_ROW = 0.1  # likewise, from the mean of a sample, whose error is 1/45 of a deviation
KIN = 0.5  # the correlation of matrices of which one began as a copy of the other
LEAST_COPIED = 2  # matrices of a layer: heads that start as copies of each other have one
