"""AWQ: words of integers, as AutoAWQ packs them for its gemm kernel."""


def gemm_words(numpy, codes):
    """(rows, out) of 4-bit codes -> (rows, out / 8): eight outputs to a word, interleaved."""
    words = numpy.zeros((codes.shape[0], codes.shape[1] // 8), numpy.uint32)
    for lane, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        words |= codes[:, column::8].astype(numpy.uint32) << (4 * lane)
    return words.view(numpy.int32)
