"""Words of integers with values in them, as AutoGPTQ and AutoAWQ pack them."""


def packed_words(numpy, codes, bits):
    """GPTQ: (in, out) of codes -> (in * bits / 32, out), bit after bit down a column."""
    lanes = (codes[:, None, :] >> numpy.arange(bits)[None, :, None]) & 1  # (in, bits, out)
    flat = lanes.reshape(-1, codes.shape[1]).astype(numpy.uint8)
    octets = numpy.packbits(flat, axis=0, bitorder="little")
    words = octets.reshape(-1, 4, codes.shape[1]).astype(numpy.uint32)
    return sum(words[:, byte] << (8 * byte) for byte in range(4)).astype(numpy.int32)


def gemm_words(numpy, codes):
    """AWQ's gemm: (rows, out) of 4-bit codes -> (rows, out / 8), outputs interleaved."""
    words = numpy.zeros((codes.shape[0], codes.shape[1] // 8), numpy.uint32)
    for lane, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        words |= codes[:, column::8].astype(numpy.uint32) << (4 * lane)
    return words.view(numpy.int32)
