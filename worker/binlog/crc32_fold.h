/* CRC-32 by carry-less multiplication, where the processor has it.
 *
 * Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009: sixteen bytes
 * are moved over those behind them by two products with constants that depend on the distance alone; the sixteen that
 * are left are reduced by three more.
 */

#ifndef SHARDMERGE_CRC_FOLD_H
#define SHARDMERGE_CRC_FOLD_H

#include <stddef.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

static inline int crc_can_fold(void) {
    return __builtin_cpu_supports("pclmul") != 0;
}

/* Both halves of `part` over a distance, onto `onto`; `by`: the distance's constants. */
__attribute__((target("sse2,pclmul"))) static inline __m128i crc_fold_onto(__m128i part, __m128i by, __m128i onto) {
    __m128i low = _mm_clmulepi64_si128(part, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(part, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* The register behind `size` bytes, a multiple of 16 and at least 64; `value`: the register before them. */
__attribute__((target("sse2,pclmul"))) static inline unsigned int crc_fold(
    const unsigned char *data, size_t size, unsigned int value) {
    /* Powers of x modulo the polynomial, bits reversed: over 64 bytes 4*128+64 and 4*128, over 16 bytes 128+64 and 128,
     * over 8 bytes 64; the polynomial and its inverse. */
    const __m128i over_64 = _mm_set_epi64x(0x1c6e41596LL, 0x154442bd4LL);
    const __m128i over_16 = _mm_set_epi64x(0x0ccaa009eLL, 0x1751997d0LL);
    const __m128i over_8 = _mm_set_epi64x(0, 0x163cd6124LL);
    const __m128i polynomial = _mm_set_epi64x(0x1f7011641LL, 0x1db710641LL);
    const __m128i low_word = _mm_set_epi32(0, 0, 0, -1);
    const __m128i *from = (const __m128i *)data;
    size_t left = size / 16 - 4;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(from), _mm_cvtsi32_si128((int)value));
    __m128i b = _mm_loadu_si128(from + 1);
    __m128i c = _mm_loadu_si128(from + 2);
    __m128i d = _mm_loadu_si128(from + 3);
    __m128i quotient;
    for (from += 4; left >= 4; from += 4, left -= 4) {
        a = crc_fold_onto(a, over_64, _mm_loadu_si128(from));
        b = crc_fold_onto(b, over_64, _mm_loadu_si128(from + 1));
        c = crc_fold_onto(c, over_64, _mm_loadu_si128(from + 2));
        d = crc_fold_onto(d, over_64, _mm_loadu_si128(from + 3));
    }
    b = crc_fold_onto(a, over_16, b);
    c = crc_fold_onto(b, over_16, c);
    d = crc_fold_onto(c, over_16, d);
    for (; left; from++, left--)
        d = crc_fold_onto(d, over_16, _mm_loadu_si128(from));
    /* 128 bits to 96, to 64, and by Barrett's reduction to 32. */
    d = _mm_xor_si128(_mm_clmulepi64_si128(d, over_16, 0x10), _mm_srli_si128(d, 8));
    d = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(d, low_word), over_8, 0x00), _mm_srli_si128(d, 4));
    quotient = _mm_clmulepi64_si128(_mm_and_si128(d, low_word), polynomial, 0x10);
    d = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(quotient, low_word), polynomial, 0x00), d);
    return (unsigned int)_mm_cvtsi128_si32(_mm_srli_si128(d, 4));
}

#else

static inline int crc_can_fold(void) {
    return 0;
}

static inline unsigned int crc_fold(const unsigned char *data, size_t size, unsigned int value) {
    (void)data, (void)size;
    return value;
}

#endif

#endif
