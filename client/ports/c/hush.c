/* hush for devices that speak C; see hush.h. Written from docs/wire.md, which has the laws and their proofs. */
#include "hush.h"

#include <limits.h>
#include <string.h>

_Static_assert(CHAR_BIT == 8 && INT_MAX >= 0x7fffffff, "needs bytes of 8 bits and an int of 32");

/* ---- unsigned integers of up to 2560 bits: enough for the difference of any two binary64 numbers
 *
 * A result that does not fit is `broken`, and so is all that is made of it; whoever takes a number out looks. */

enum { LIMBS = 80 };

typedef struct {
    bool broken;
    size_t used; /* the highest limb in use is not zero */
    uint32_t limb[LIMBS];
} big;

static big big_of(uint64_t value)
{
    big r = {0};
    for (; value; value >>= 32) {
        r.limb[r.used++] = (uint32_t)value;
    }
    return r;
}

static void big_trim(big *a)
{
    while (a->used && a->limb[a->used - 1] == 0) {
        a->used--;
    }
}

static int big_compare(const big *a, const big *b)
{
    if (a->used != b->used) {
        return a->used < b->used ? -1 : 1;
    }
    for (size_t i = a->used; i-- > 0;) {
        if (a->limb[i] != b->limb[i]) {
            return a->limb[i] < b->limb[i] ? -1 : 1;
        }
    }
    return 0;
}

static size_t big_bits(const big *a)
{
    size_t bits = 32 * a->used;
    for (uint32_t top = a->used ? a->limb[a->used - 1] : UINT32_MAX; !(top >> 31); top <<= 1) {
        bits--;
    }
    return bits;
}

static void big_add(big *a, const big *b)
{
    size_t n = a->used > b->used ? a->used : b->used;
    uint64_t carry = 0;
    for (size_t i = 0; i < n; i++) {
        carry += (uint64_t)a->limb[i] + b->limb[i]; /* limbs not in use are zero */
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    a->used = n;
    a->broken = a->broken || b->broken || (carry && n == LIMBS);
    if (carry && n < LIMBS) {
        a->limb[a->used++] = (uint32_t)carry;
    }
}

/* a - b; broken if b is larger. */
static void big_subtract(big *a, const big *b)
{
    a->broken = a->broken || b->broken || big_compare(a, b) < 0;
    if (a->broken) {
        return;
    }
    uint64_t borrow = 0;
    for (size_t i = 0; i < a->used; i++) {
        uint64_t left = (uint64_t)a->limb[i] - b->limb[i] - borrow;
        a->limb[i] = (uint32_t)left;
        borrow = left >> 63;
    }
    big_trim(a);
}

static big big_multiply(const big *a, const big *b)
{
    big r = {0};
    r.broken = a->broken || b->broken || a->used + b->used > LIMBS;
    if (r.broken) {
        return r;
    }
    for (size_t i = 0; i < a->used; i++) {
        uint64_t carry = 0;
        for (size_t j = 0; j < b->used; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + r.limb[i + j];
            r.limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        r.limb[i + b->used] = (uint32_t)carry;
    }
    r.used = a->used + b->used;
    big_trim(&r);
    return r;
}

static big big_shift_left(const big *a, size_t by)
{
    big r = {0};
    size_t words = by / 32, bits = by % 32;
    r.broken = a->broken || (a->used && a->used + words + 1 > LIMBS);
    if (r.broken || !a->used) {
        return r;
    }
    for (size_t i = 0; i < a->used; i++) {
        uint64_t both = (uint64_t)a->limb[i] << bits;
        r.limb[i + words] |= (uint32_t)both;
        r.limb[i + words + 1] = (uint32_t)(both >> 32);
    }
    r.used = a->used + words + 1;
    big_trim(&r);
    return r;
}

static void big_halve(big *a)
{
    for (size_t i = 0; i < a->used; i++) {
        uint32_t above = i + 1 < a->used ? a->limb[i + 1] : 0;
        a->limb[i] = a->limb[i] >> 1 | above << 31;
    }
    big_trim(a);
}

/* quotient = floor(a / b), and a becomes the remainder. */
static big big_divide(big *a, const big *b)
{
    big quotient = {0};
    quotient.broken = a->broken || b->broken || b->used == 0;
    a->broken = quotient.broken;
    if (a->broken || big_compare(a, b) < 0) {
        return quotient;
    }
    size_t shift = big_bits(a) - big_bits(b);
    big part = big_shift_left(b, shift);
    quotient.broken = a->broken = part.broken;
    quotient.used = shift / 32 + 1;
    for (size_t i = shift + 1; !a->broken && i-- > 0; big_halve(&part)) {
        if (big_compare(a, &part) >= 0) {
            big_subtract(a, &part);
            quotient.limb[i / 32] |= UINT32_C(1) << i % 32;
        }
    }
    big_trim(&quotient);
    return quotient;
}

/* Divides in place by a small number, rounded down, or up where asked: one after the other, as by the product. */
static void big_divide_small(big *a, uint32_t by, bool up)
{
    uint64_t rest = 0;
    for (size_t i = a->used; i-- > 0;) {
        rest = rest << 32 | a->limb[i];
        a->limb[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    big_trim(a);
    if (up && rest) {
        big one = big_of(1);
        big_add(a, &one);
    }
}

static big big_power_of_ten(size_t exponent)
{
    big r = big_of(1);
    const big ten = big_of(10);
    for (; exponent; exponent--) {
        r = big_multiply(&r, &ten);
    }
    return r;
}

static uint64_t big_low(const big *a)
{
    return (uint64_t)a->limb[1] << 32 | a->limb[0];
}

/* ---- decimal text to binary64, correctly rounded, without a float: the same number on every machine */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* numerator / denominator to the nearest binary64, ties to even; false if it overflows or cannot be computed. */
static bool nearest(const big *numerator, const big *denominator, hush_number *out)
{
    int exponent = (int)big_bits(numerator) - (int)big_bits(denominator) - 53;
    *out = (hush_number){0};
    if (numerator->broken || denominator->broken || !denominator->used) {
        return false;
    }
    if (!numerator->used) {
        return true;
    }
    for (exponent = exponent < -1074 ? -1074 : exponent;; exponent++) {
        big rest = big_shift_left(numerator, exponent < 0 ? (size_t)-exponent : 0);
        big unit = big_shift_left(denominator, exponent > 0 ? (size_t)exponent : 0);
        big quotient = big_divide(&rest, &unit);
        if (quotient.broken) {
            return false;
        }
        if (big_bits(&quotient) > 53) {
            continue; /* one bit too many: the next exponent has 53 */
        }
        big twice = big_shift_left(&rest, 1);
        int half = big_compare(&twice, &unit);
        out->mantissa = big_low(&quotient);
        out->mantissa += half > 0 || (half == 0 && (out->mantissa & 1));
        out->exponent = out->mantissa ? exponent : 0;
        big rounded = big_of(out->mantissa);
        return !twice.broken && (int)big_bits(&rounded) + exponent <= 1024;
    }
}

enum {
    BEYOND = 1024,         /* the exponent of what is beyond all binary64 numbers */
    MOST_EXPONENT = 100000 /* typed; whatever is larger changes nothing */
};

static bool is_infinity(const char *text, size_t size)
{
    static const char word[] = "infinity";
    if (size != 3 && size != sizeof word - 1) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if ((text[i] | 0x20) != word[i]) { /* letters differ from their capitals in this bit */
            return false;
        }
    }
    return true;
}

/* [+-] digits [. digits] [e [+-] digits], at least one digit, or [+-] inf or infinity; at most 100 characters.
 * What is beyond all binary64 numbers has the exponent BEYOND. False: no such text. */
static bool read_decimal(const char *text, size_t size, hush_number *out)
{
    const char *at = text, *end = text + size;
    big digits = {0};
    const big ten = big_of(10);
    int exponent = 0, typed = 0, written = 0, count = 0;
    bool point = false, negative = false, down = false;
    if (size > 100) {
        return false;
    }
    if (at < end && (*at == '+' || *at == '-')) {
        negative = *at++ == '-';
    }
    if (is_infinity(at, (size_t)(end - at))) {
        *out = (hush_number){negative, 1, BEYOND};
        return true;
    }
    for (; at < end && (is_digit(*at) || (*at == '.' && !point)); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        big digit = big_of((uint64_t)(*at - '0'));
        digits = big_multiply(&digits, &ten);
        big_add(&digits, &digit);
        written++;
        count += digits.used != 0;
        exponent -= point;
    }
    if (!written) {
        return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) {
            down = *at++ == '-';
        }
        for (written = 0; at < end && is_digit(*at); at++, written++) {
            typed = typed < MOST_EXPONENT ? 10 * typed + (*at - '0') : typed;
        }
        if (!written) {
            return false;
        }
        exponent += down ? -typed : typed;
    }
    if (at != end) {
        return false;
    }
    if (!count || count + exponent < -330) {
        *out = (hush_number){0}; /* zero, or below half of the smallest binary64 */
        return true;
    }
    *out = (hush_number){negative, 1, BEYOND};
    if (count + exponent > 310) {
        return true;
    }
    big power = big_power_of_ten((size_t)(exponent < 0 ? -exponent : exponent));
    const big one = big_of(1);
    big scaled = exponent < 0 ? digits : big_multiply(&digits, &power);
    if (!nearest(&scaled, exponent < 0 ? &power : &one, out)) {
        *out = (hush_number){negative, 1, BEYOND};
    }
    out->negative = negative && out->mantissa;
    return true;
}

static big magnitude(const hush_number *a, int exponent)
{
    big mantissa = big_of(a->mantissa);
    return big_shift_left(&mantissa, (size_t)(a->exponent - exponent));
}

/* What read_decimal leaves; anything else was made by hand. */
static bool is_number(const hush_number *a)
{
    return a->mantissa <= UINT64_C(1) << 53 && a->exponent >= -1074 && a->exponent <= 971;
}

static int least_exponent(const hush_number *a, const hush_number *b)
{
    return a->exponent < b->exponent ? a->exponent : b->exponent;
}

static int number_compare(const hush_number *a, const hush_number *b)
{
    int exponent = least_exponent(a, b);
    big x = magnitude(a, exponent), y = magnitude(b, exponent);
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    return a->negative ? big_compare(&y, &x) : big_compare(&x, &y);
}

/* a - b in units of 2^exponent; broken if that is negative. */
static big difference(const hush_number *a, const hush_number *b, int exponent)
{
    big x = magnitude(a, exponent), y = magnitude(b, exponent);
    if (a->negative == b->negative) {
        big_subtract(a->negative ? &y : &x, a->negative ? &x : &y);
        return a->negative ? y : x;
    }
    big_add(&x, &y);
    x.broken = x.broken || a->negative;
    return x;
}

/* ---- epsilon: an exact decimal fraction, and a certified integer weight made of it */

typedef struct {
    big numerator;
    size_t places; /* epsilon = numerator / 10^places */
} decimal;

/* 1 to 3 digits [. 1 to 18 digits] [e [-] digit]: what hush admits; anything else is no exact epsilon. */
static bool read_exact(const char *text, decimal *out)
{
    const big ten = big_of(10);
    size_t written = 0, places = 0, shift = 0;
    bool point = false, down = false;
    *out = (decimal){0};
    for (;; text++) {
        if (*text == '.' && !point && written) {
            point = true;
            continue;
        }
        if (!is_digit(*text)) {
            break;
        }
        big digit = big_of((uint64_t)(*text - '0'));
        out->numerator = big_multiply(&out->numerator, &ten);
        big_add(&out->numerator, &digit);
        if (point ? ++places > 18 : ++written > 3) {
            return false;
        }
    }
    if (!written || (point && !places)) {
        return false;
    }
    if (*text == 'e' || *text == 'E') {
        down = text[1] == '-';
        text += 1 + down;
        if (!is_digit(*text)) {
            return false;
        }
        shift = (size_t)(*text++ - '0');
    }
    if (*text) {
        return false;
    }
    if (!down && shift) {
        big power = big_power_of_ten(shift);
        out->numerator = big_multiply(&out->numerator, &power);
    }
    out->places = places + (down ? shift : 0);
    return !out->numerator.broken;
}

/* a <= factor * b, exactly. */
static bool at_most(const decimal *a, const decimal *b)
{
    big left = big_power_of_ten(b->places), right = big_power_of_ten(a->places);
    left = big_multiply(&a->numerator, &left);
    right = big_multiply(&b->numerator, &right);
    return !left.broken && !right.broken && big_compare(&left, &right) <= 0;
}

static bool read_epsilon(const char *text, decimal *out)
{
    decimal smallest, largest;
    return read_exact("0.000001", &smallest) && read_exact("50", &largest) && read_exact(text, out) &&
           at_most(&smallest, out) && at_most(out, &largest);
}

enum { TRUTH_BITS = 128, PRECISION = 512 };

/* The next term of Taylor's series: term * epsilon / j, rounded down or up. */
static big next_term(const big *term, const decimal *epsilon, uint32_t j, bool up)
{
    big r = big_multiply(term, &epsilon->numerator);
    for (size_t place = 0; place < epsilon->places; place++) {
        big_divide_small(&r, 10, up);
    }
    big_divide_small(&r, j, up);
    return r;
}

/* floor(2^128 * e^-epsilon) + 1, certified: e^epsilon is enclosed by two integers over 2^512, and both give this.
 * After the last term J > 2 * epsilon the remainder of the series is below that term. */
static hush_status weight_of_lie(const decimal *epsilon, big *weight)
{
    const big one = big_of(1), scale = big_shift_left(&one, PRECISION);
    big low_term = scale, high_term = scale, low = scale, high = scale;
    for (uint32_t j = 1; j <= 100 || big_compare(&high_term, &one) > 0; j++) { /* 100 = 2 * 50 */
        low_term = next_term(&low_term, epsilon, j, false);
        high_term = next_term(&high_term, epsilon, j, true);
        big_add(&low, &low_term);
        big_add(&high, &high_term);
        if (j > 1000 || high.broken) {
            return HUSH_EPSILON; /* cannot happen for an epsilon of at most 50 */
        }
    }
    big_add(&high, &high_term);
    big above = big_shift_left(&one, PRECISION + TRUTH_BITS), below = above;
    above = big_divide(&above, &low);
    below = big_divide(&below, &high);
    if (above.broken || below.broken || big_compare(&above, &below) != 0) {
        return HUSH_EPSILON; /* cannot happen: e^epsilon is irrational, and 300 bits are to spare */
    }
    *weight = below;
    big_add(weight, &one);
    return HUSH_OK;
}

/* ---- draws; bytes are taken in the order in which the Python client takes them */

typedef struct {
    hush_random fill;
    void *context;
} randomness;

enum {
    MOST_TRIES = 64,      /* each fails with probability below 1/256 */
    MOST_FLIPS = 1000,    /* flip k happens with probability 1/k! at most */
    MOST_QUOTIENT = 10000 /* reached with probability e^-10000; all three are one in 2^500 or less: a broken source */
};

/* A uniform integer in [0, n), by rejection. */
static hush_status random_below(const randomness *source, const big *n, big *out)
{
    uint8_t bytes[64];
    const big one = big_of(1);
    size_t size = (big_bits(n) + 15) / 8;
    *out = (big){0};
    if (n->broken || !n->used || size > sizeof bytes) {
        return HUSH_ARGUMENT;
    }
    big limit = big_shift_left(&one, 8 * size), rest = limit;
    (void)big_divide(&rest, n);
    big_subtract(&limit, &rest); /* a multiple of n: below it every remainder is equally likely */
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        if (source->fill(source->context, bytes, size) != 0) {
            return HUSH_RANDOM;
        }
        *out = (big){0};
        for (size_t i = 0; i < size; i++) {
            size_t place = size - 1 - i;
            out->limb[place / 4] |= (uint32_t)bytes[i] << 8 * (place % 4);
        }
        out->used = (size + 3) / 4;
        big_trim(out);
        if (big_compare(out, &limit) < 0) {
            (void)big_divide(out, n);
            return out->broken ? HUSH_ARGUMENT : HUSH_OK;
        }
    }
    return HUSH_RANDOM;
}

/* True with probability exactly e^(-numerator/denominator), numerator <= denominator (Canonne, Kamath and Steinke
 * 2020, algorithm 1). */
static hush_status bernoulli_exp(const randomness *source, const big *numerator, const big *denominator, bool *out)
{
    bool certain = big_compare(numerator, denominator) == 0; /* a draw below 1 out of 1 */
    big bound = *denominator, draw;
    if (certain) {
        big_add(&bound, denominator);
    }
    for (int k = 1 + certain; k < MOST_FLIPS; k++) {
        hush_status status = random_below(source, &bound, &draw);
        if (status != HUSH_OK) {
            return status;
        }
        if (big_compare(&draw, numerator) >= 0) {
            *out = k % 2 == 1;
            return HUSH_OK;
        }
        big_add(&bound, denominator);
    }
    return HUSH_RANDOM;
}

static hush_status geometric_quotient(const randomness *source, big *out)
{
    const big one = big_of(1);
    for (uint64_t quotient = 0; quotient < MOST_QUOTIENT; quotient++) {
        bool more = false;
        hush_status status = bernoulli_exp(source, &one, &one, &more);
        if (status != HUSH_OK || !more) {
            *out = big_of(quotient);
            return status;
        }
    }
    return HUSH_RANDOM;
}

/* Exact discrete Laplace noise of scale t/s (same source, algorithm 2), as sign and magnitude. */
static hush_status discrete_laplace(const randomness *source, const big *s, const big *t, bool *negative, big *out)
{
    const big twice = big_shift_left(t, 1);
    for (int tries = 0; tries < MOST_FLIPS; tries++) {
        big residue, quotient;
        bool accepted = false;
        hush_status status = random_below(source, &twice, &residue);
        if (status != HUSH_OK) {
            return status;
        }
        *negative = residue.limb[0] & 1;
        big_halve(&residue);
        if ((status = bernoulli_exp(source, &residue, t, &accepted)) != HUSH_OK) {
            return status;
        }
        if (!accepted) {
            continue;
        }
        if ((status = geometric_quotient(source, &quotient)) != HUSH_OK) {
            return status;
        }
        big total = big_multiply(t, &quotient);
        big_add(&total, &residue);
        *out = big_divide(&total, s);
        if (*negative && !out->used) {
            continue; /* zero has one sign */
        }
        return out->broken ? HUSH_ARGUMENT : HUSH_OK;
    }
    return HUSH_RANDOM;
}

static big greatest_common_divisor(big a, big b)
{
    while (b.used && !b.broken) {
        (void)big_divide(&a, &b);
        big rest = a;
        a = b;
        b = rest;
    }
    return a;
}

static hush_status laplace(const randomness *source, const decimal *epsilon, uint32_t index, int64_t *body)
{
    const big steps = big_of(HUSH_STEPS), forty = big_of(40);
    big t = big_power_of_ten(epsilon->places), s = epsilon->numerator, noise;
    bool negative = false;
    t = big_multiply(&t, &steps);
    const big common = greatest_common_divisor(t, s);
    t = big_divide(&t, &common);
    s = big_divide(&s, &common);
    hush_status status = discrete_laplace(source, &s, &t, &negative, &noise);
    if (status != HUSH_OK) {
        return status;
    }
    big reach = big_multiply(&t, &forty);
    big window = big_divide(&reach, &s);
    if (window.broken || big_bits(&window) > 60) {
        return HUSH_ARGUMENT; /* cannot happen for an epsilon of at least 0.000001 */
    }
    const int64_t outside = (int64_t)big_low(&window) + (reach.used != 0);
    const int64_t size = big_bits(&noise) > 61 ? INT64_C(1) << 61 : (int64_t)big_low(&noise);
    const int64_t k = (int64_t)index + (negative ? -size : size);
    *body = k < -outside ? -outside : k > HUSH_STEPS + outside ? HUSH_STEPS + outside : k;
    return HUSH_OK;
}

static hush_status randomized_response(const randomness *source, const big *lie, uint32_t index, int64_t *body)
{
    const big one = big_of(1), truth = big_shift_left(&one, TRUTH_BITS);
    big total = truth, draw;
    big_add(&total, lie);
    hush_status status = random_below(source, &total, &draw);
    *body = status == HUSH_OK && big_compare(&draw, index ? &truth : lie) < 0;
    return status;
}

static hush_status multilevel(const randomness *source, const big *lie, uint32_t levels, uint32_t index, int64_t *body)
{
    const big one = big_of(1), truth = big_shift_left(&one, TRUTH_BITS), steps = big_of(HUSH_STEPS);
    const big others = big_of(levels);
    const uint64_t position = (uint64_t)index * levels;
    big total = big_multiply(&others, lie), draw;
    big_add(&total, &truth);
    const big both = big_multiply(&total, &steps);
    hush_status status = random_below(source, &both, &draw);
    if (status != HUSH_OK) {
        return status;
    }
    const big rounding = big_divide(&draw, &total); /* below steps, and what is left below total: independent */
    const uint64_t level = position / HUSH_STEPS + (big_low(&rounding) < position % HUSH_STEPS);
    if (big_compare(&draw, &truth) < 0) {
        *body = (int64_t)level;
        return HUSH_OK;
    }
    big_subtract(&draw, &truth);
    const big other = big_divide(&draw, lie);
    *body = (int64_t)(big_low(&other) + (big_low(&other) >= level));
    return HUSH_OK;
}

/* ---- an answer */

static bool is_bit(const hush_task *task)
{
    return task->mechanism == HUSH_RANDOMIZED_RESPONSE;
}

static bool read_bit(const char *text, uint32_t *index)
{
    static const char *const words[2][3] = {{"no", "false", "0"}, {"yes", "true", "1"}};
    for (uint32_t bit = 0; bit < 2; bit++) {
        for (size_t i = 0; i < 3; i++) {
            if (strcmp(text, words[bit][i]) == 0) {
                *index = bit;
                return true;
            }
        }
    }
    return false;
}

hush_status hush_index(const hush_task *task, const char *value, uint32_t *index, hush_became *became)
{
    hush_number number;
    if (!task || !index || !became) {
        return HUSH_ARGUMENT;
    }
    *index = 0;
    *became = HUSH_REPLACED;
    if (is_bit(task)) {
        *became = value && read_bit(value, index) ? HUSH_USED : HUSH_REPLACED;
        return HUSH_OK;
    }
    if (!is_number(&task->lower) || !is_number(&task->upper) || number_compare(&task->lower, &task->upper) >= 0) {
        return HUSH_TASK;
    }
    if (!value || !read_decimal(value, strlen(value), &number)) {
        return HUSH_OK;
    }
    const bool below = number_compare(&number, &task->lower) < 0, above = number_compare(&number, &task->upper) > 0;
    *became = below || above ? HUSH_MOVED : HUSH_USED;
    number = below ? task->lower : above ? task->upper : number;
    int exponent = least_exponent(&task->lower, &task->upper);
    exponent = exponent < number.exponent ? exponent : number.exponent;
    const big range = difference(&task->upper, &task->lower, exponent), steps = big_of(HUSH_STEPS);
    big offset = difference(&number, &task->lower, exponent);
    offset = big_multiply(&offset, &steps);
    const big quotient = big_divide(&offset, &range);
    const big twice = big_shift_left(&offset, 1);
    if (quotient.broken || twice.broken) {
        return HUSH_ARGUMENT;
    }
    const int half = big_compare(&twice, &range); /* ties to the even index */
    *index = (uint32_t)big_low(&quotient);
    *index += half > 0 || (half == 0 && (*index & 1));
    return *index <= HUSH_STEPS ? HUSH_OK : HUSH_ARGUMENT;
}

hush_status hush_perturb(const hush_task *task, uint32_t index, hush_random source, void *context, int64_t *body)
{
    const randomness random = {source, context};
    decimal epsilon;
    big lie;
    if (!task || !source || !body || index > (is_bit(task) ? 1u : (uint32_t)HUSH_STEPS)) {
        return HUSH_ARGUMENT;
    }
    if (!memchr(task->epsilon, 0, sizeof task->epsilon) || !read_epsilon(task->epsilon, &epsilon)) {
        return HUSH_EPSILON;
    }
    if (task->mechanism == HUSH_LAPLACE) {
        return laplace(&random, &epsilon, index, body);
    }
    hush_status status = weight_of_lie(&epsilon, &lie);
    if (status != HUSH_OK) {
        return status;
    }
    if (task->mechanism == HUSH_RANDOMIZED_RESPONSE) {
        return randomized_response(&random, &lie, index, body);
    }
    if (task->mechanism != HUSH_MULTILEVEL || task->levels < 1 || task->levels > HUSH_MOST_LEVELS) {
        return HUSH_TASK;
    }
    return multilevel(&random, &lie, task->levels, index, body);
}

hush_status hush_answer(const hush_task *task, const char *value, int64_t now, hush_random source, void *context,
                        hush_report *report)
{
    const randomness random = {source, context};
    uint32_t index = 0;
    hush_became became = HUSH_REPLACED;
    int64_t body = 0;
    if (!task || !source || !report) {
        return HUSH_ARGUMENT;
    }
    memset(report, 0, sizeof *report);
    if (now < task->opens || now >= task->closes) {
        return now < task->opens ? HUSH_NOT_OPEN : HUSH_CLOSED;
    }
    hush_status status = hush_index(task, value, &index, &became);
    if (status == HUSH_OK && became == HUSH_REPLACED) {
        const big size = big_of(is_bit(task) ? 2 : HUSH_STEPS + 1);
        big draw;
        status = random_below(&random, &size, &draw);
        index = (uint32_t)big_low(&draw);
    }
    if (status == HUSH_OK) {
        status = hush_perturb(task, index, source, context, &body);
    }
    if (status != HUSH_OK) {
        return status;
    }
    if (source(context, report->id, sizeof report->id) != 0) {
        return HUSH_RANDOM;
    }
    memcpy(report->digest, task->digest, sizeof report->digest);
    report->body = body;
    report->value = became;
    return HUSH_OK;
}

/* ---- SHA-256 (FIPS 180-4) */

static const uint32_t SHA_ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

static void sha_block(uint32_t state[8], const uint8_t block[64])
{
    uint32_t w[64], v[8];
    for (size_t i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    }
    for (size_t i = 16; i < 64; i++) {
        uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, state, sizeof v);
    for (size_t i = 0; i < 64; i++) {
        uint32_t e = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
        uint32_t a = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
        uint32_t first = v[7] + e + ((v[4] & v[5]) ^ (~v[4] & v[6])) + SHA_ROUND[i] + w[i];
        uint32_t second = a + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (size_t i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

void hush_digest(const uint8_t *payload, size_t size, uint8_t digest[HUSH_DIGEST_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, tail = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64) {
        sha_block(state, payload + at);
    }
    if (rest) {
        memcpy(last, payload + whole, rest);
    }
    last[rest] = 0x80;
    for (size_t i = 0; i < 8; i++) {
        last[tail - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    }
    for (size_t at = 0; at < tail; at += 64) {
        sha_block(state, last + at);
    }
    for (size_t i = 0; i < HUSH_DIGEST_BYTES; i++) {
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

/* ---- the wire */

static void put_big_endian(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    }
}

hush_status hush_encode_frame(const uint8_t *digest, uint32_t round, const uint8_t *ids, const int64_t *bodies,
                              size_t width, size_t count, uint8_t *out, size_t capacity, size_t *size)
{
    if (!digest || !ids || !bodies || !out || !size || width < 1 || width > HUSH_MOST_WIDTH || count < 1 ||
        count > HUSH_MOST_REPORTS) {
        return HUSH_ARGUMENT;
    }
    if (capacity < HUSH_HEADER_BYTES || (capacity - HUSH_HEADER_BYTES) / (HUSH_ID_BYTES + 8 * width) < count) {
        return HUSH_SPACE;
    }
    uint8_t *at = out;
    put_big_endian(at, 2, 1); /* version */
    put_big_endian(at + 1, 0, 1);
    put_big_endian(at + 2, 8 * width, 2);
    memcpy(at + 4, digest, HUSH_REPORT_DIGEST_BYTES);
    put_big_endian(at + 4 + HUSH_REPORT_DIGEST_BYTES, round, 4);
    at += HUSH_HEADER_BYTES;
    for (size_t report = 0; report < count; report++) {
        memcpy(at, ids + HUSH_ID_BYTES * report, HUSH_ID_BYTES);
        at += HUSH_ID_BYTES;
        for (size_t i = 0; i < width; i++, at += 8) {
            put_big_endian(at, (uint64_t)bodies[width * report + i], 8);
        }
    }
    *size = (size_t)(at - out);
    return HUSH_OK;
}

typedef struct {
    char *out;
    size_t capacity, size;
    bool full;
} writer;

static void put_text(writer *to, const char *text)
{
    size_t size = strlen(text);
    to->full = to->full || to->capacity - to->size < size;
    if (!to->full) {
        memcpy(to->out + to->size, text, size);
        to->size += size;
    }
}

/* By hand: the printf of a small libc may not know 64 bits, and would say nothing. */
static void put_number(writer *to, uint64_t value, bool negative)
{
    char digits[21], *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
    } while (value /= 10);
    put_text(to, negative ? "-" : "");
    put_text(to, at);
}

static void put_hex(writer *to, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {"0123456789abcdef"[bytes[i] >> 4], "0123456789abcdef"[bytes[i] & 15], 0};
        put_text(to, pair);
    }
}

static bool is_task_id(const char *text)
{
    size_t size = strlen(text);
    if (size < 1 || size > 64 || *text == '-') {
        return false;
    }
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == size;
}

static bool is_sender(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@:-";
    size_t size = strlen(text);
    return size >= 1 && size <= 128 && strspn(text, letters) == size && !strchr("._@:-", *text);
}

hush_status hush_encode_json(const char *task_id, const uint8_t *digest, uint32_t round, const uint8_t *id,
                             const int64_t *body, size_t width, char *out, size_t capacity, size_t *size)
{
    if (!task_id || !digest || !id || !body || !out || !size || !is_task_id(task_id) || width < 1 ||
        width > HUSH_MOST_WIDTH) {
        return HUSH_ARGUMENT;
    }
    writer to = {out, capacity, 0, false};
    put_text(&to, "{\"v\":2,\"task\":\"");
    put_text(&to, task_id);
    put_text(&to, "\",\"digest\":\"");
    put_hex(&to, digest, HUSH_REPORT_DIGEST_BYTES);
    put_text(&to, "\",\"round\":");
    put_number(&to, round, false);
    put_text(&to, ",\"id\":\"");
    put_hex(&to, id, HUSH_ID_BYTES);
    put_text(&to, "\",\"body\":[");
    for (size_t i = 0; i < width; i++) {
        put_text(&to, i ? "," : "");
        put_number(&to, body[i] < 0 ? 0 - (uint64_t)body[i] : (uint64_t)body[i], body[i] < 0);
    }
    put_text(&to, "]}");
    *size = to.size;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

hush_status hush_report_topic(const char *task_id, const char *sender, char *out, size_t capacity)
{
    if (!task_id || !sender || !out || !is_task_id(task_id) || !is_sender(sender)) {
        return HUSH_ARGUMENT;
    }
    if (!capacity) {
        return HUSH_SPACE;
    }
    writer to = {out, capacity - 1, 0, false};
    put_text(&to, "hush/v1/reports/");
    put_text(&to, task_id);
    put_text(&to, "/");
    put_text(&to, sender);
    out[to.size] = 0;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

/* ---- reading a task: only what is understood completely; everything else is refused */

typedef struct {
    const char *at, *end;
} reader;

static void skip_space(reader *from)
{
    while (from->at < from->end && memchr(" \t\r\n", *from->at, 4)) {
        from->at++;
    }
}

/* Whether `symbol` comes next, after white space; if so it is taken. */
static bool take(reader *from, char symbol)
{
    skip_space(from);
    if (from->at == from->end || *from->at != symbol) {
        return false;
    }
    from->at++;
    return true;
}

/* Characters that no text has: controls, formats, white space but the space, private use; docs/wire.md has the list. */
static const uint32_t UNPRINTABLE[][2] = {
    {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},       {0x6dd, 0x6dd},
    {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},     {0x180e, 0x180e},
    {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},     {0xd800, 0xf8ff},
    {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0x110bd, 0x110bd},   {0x110cd, 0x110cd},
    {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff},   {0xe01f0, 0xe0fff},
    {0xf0000, 0x10ffff},
};

static bool is_printable(uint32_t point)
{
    for (size_t i = 0; i < sizeof UNPRINTABLE / sizeof *UNPRINTABLE; i++) {
        if (point >= UNPRINTABLE[i][0] && point <= UNPRINTABLE[i][1]) {
            return false;
        }
    }
    return (point & 0xfffe) != 0xfffe; /* the last two of each plane are no characters */
}

/* Whether it is UTF-8 without a character that is not printable. Those below a space are white space between words;
 * read_line refuses them in texts. */
static bool is_text(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint32_t lead = *at++, point = lead;
        int more = lead < 0x80 ? 0 : lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
        if (more < 0 || end - at < more) {
            return false;
        }
        if (more) {
            point &= 0x3fu >> more;
        }
        for (int i = 0; i < more; i++, at++) {
            if ((*at & 0xc0) != 0x80) {
                return false;
            }
            point = point << 6 | (*at & 0x3fu);
        }
        if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
            (more == 3 && (point < 0x10000 || point > 0x10ffff)) || !is_printable(point)) {
            return false;
        }
    }
    return true;
}

/* A line for people, of at most `most` characters; of escapes those of quote and backslash alone. */
static hush_status read_line(reader *from, size_t most, const char **text, size_t *size)
{
    size_t characters = 0;
    if (!take(from, '"')) {
        return HUSH_TASK;
    }
    *text = from->at;
    for (; from->at < from->end && *from->at != '"'; from->at++) {
        characters += ((unsigned char)*from->at & 0xc0) != 0x80;
        if ((unsigned char)*from->at < 0x20) {
            return HUSH_MALFORMED;
        }
        if (*from->at == '\\' && (++from->at == from->end || !memchr("\"\\", *from->at, 2))) {
            return HUSH_TASK;
        }
    }
    *size = (size_t)(from->at - *text);
    if (!take(from, '"')) {
        return HUSH_MALFORMED;
    }
    return characters <= most ? HUSH_OK : HUSH_TASK;
}

/* A string that matters: without any escape, shorter than `capacity`. */
static hush_status read_word(reader *from, char *out, size_t capacity)
{
    const char *text = NULL;
    size_t size = 0;
    *out = 0;
    hush_status status = read_line(from, HUSH_TASK_BYTES, &text, &size);
    if (status != HUSH_OK) {
        return status;
    }
    if (size >= capacity || (size && memchr(text, '\\', size))) {
        return HUSH_TASK;
    }
    memcpy(out, text, size);
    out[size] = 0;
    return HUSH_OK;
}

/* The characters of a JSON number, shorter than `capacity`. */
static hush_status read_number_text(reader *from, char *out, size_t capacity)
{
    skip_space(from);
    size_t size = 0;
    *out = 0;
    while (size < (size_t)(from->end - from->at) && from->at[size] && strchr("+-.0123456789eE", from->at[size])) {
        size++;
    }
    if (!size || size >= capacity) {
        return HUSH_TASK;
    }
    memcpy(out, from->at, size);
    out[size] = 0;
    from->at += size;
    const char *digits = out + (*out == '-');
    const char *point = digits + strspn(digits, "0123456789");
    if (point == digits || (*digits == '0' && point - digits > 1) || (*point == '.' && !is_digit(point[1]))) {
        return HUSH_MALFORMED; /* what JSON has no room for and decimal text has */
    }
    return HUSH_OK;
}

static hush_status read_bound(reader *from, hush_number *out)
{
    char text[101];
    hush_status status = read_number_text(from, text, sizeof text);
    if (status != HUSH_OK) {
        return status;
    }
    return read_decimal(text, strlen(text), out) && out->exponent != BEYOND ? HUSH_OK : HUSH_TASK;
}

static hush_status read_count(reader *from, uint64_t most, uint64_t *out)
{
    char text[18];
    hush_status status = read_number_text(from, text, sizeof text);
    *out = 0;
    if (status != HUSH_OK) {
        return status;
    }
    for (const char *at = text; *at; at++) {
        if (!is_digit(*at)) {
            return HUSH_TASK;
        }
        *out = 10 * *out + (uint64_t)(*at - '0');
    }
    return *out >= 1 && *out <= most ? HUSH_OK : HUSH_TASK;
}

/* Text as hush publishes it, or a JSON integer; never a float, because 0.1 is not one tenth. */
static hush_status read_epsilon_text(reader *from, char *out, size_t capacity)
{
    skip_space(from);
    if (from->at < from->end && *from->at == '"') {
        return read_word(from, out, capacity);
    }
    hush_status status = read_number_text(from, out, capacity);
    return status == HUSH_OK && strspn(out, "0123456789") != strlen(out) ? HUSH_EPSILON : status;
}

static bool two_digits(const char *text, int most, int *out)
{
    *out = 10 * (text[0] - '0') + (text[1] - '0');
    return is_digit(text[0]) && is_digit(text[1]) && *out <= most;
}

/* "2026-01-31T23:00:00Z", as hush publishes it, to Unix seconds. */
static hush_status read_moment(reader *from, int64_t *out)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    char text[24];
    int century, year, month, day, hour, minute, second;
    hush_status status = read_word(from, text, sizeof text);
    if (status != HUSH_OK) {
        return status;
    }
    if (strlen(text) != 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
        text[16] != ':' || text[19] != 'Z' || !two_digits(text, 99, &century) || !two_digits(text + 2, 99, &year) ||
        !two_digits(text + 5, 12, &month) || !two_digits(text + 8, 31, &day) || !two_digits(text + 11, 23, &hour) ||
        !two_digits(text + 14, 59, &minute) || !two_digits(text + 17, 59, &second)) {
        return HUSH_TASK;
    }
    year += 100 * century;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || day < 1 || day > before[month] - before[month - 1] + (leap && month == 2)) {
        return HUSH_TASK;
    }
    const int past = year - 1;
    const int64_t days = 365 * (int64_t)past + past / 4 - past / 100 + past / 400 + before[month - 1] +
                         (leap && month > 2) + day - 1;
    *out = (days - 719162) * 86400 + hour * 3600 + minute * 60 + second;
    return HUSH_OK;
}

/* "30d", as hush publishes a length of time: at most 3650 days. */
static hush_status skip_length(reader *from)
{
    static const char units[] = "smhdw";
    static const int64_t seconds[] = {1, 60, 3600, 86400, 604800};
    char text[11];
    int64_t count = 0;
    const char *at = text;
    hush_status status = read_word(from, text, sizeof text);
    if (status != HUSH_OK) {
        return status;
    }
    while (is_digit(*at)) {
        count = 10 * count + (*at++ - '0');
    }
    const char *unit = *at ? strchr(units, *at) : NULL;
    return text[0] != '0' && at != text && unit && !at[1] && count * seconds[unit - units] <= INT64_C(315360000)
               ? HUSH_OK
               : HUSH_TASK;
}

enum { /* the fields of a task and of its domain, as bits, in the order of the names */
    FIELD_ID = 1 << 0, FIELD_TITLE = 1 << 1, FIELD_PURPOSE = 1 << 2, FIELD_EPSILON = 1 << 3, FIELD_MECHANISM = 1 << 4,
    FIELD_DOMAIN = 1 << 5, FIELD_ROUNDS = 1 << 6, FIELD_LEVELS = 1 << 7, FIELD_ENROLLED = 1 << 8,
    FIELD_OPENS = 1 << 9, FIELD_CLOSES = 1 << 10, FIELD_RELEASE_FROM = 1 << 11, FIELD_RELEASE_EVERY = 1 << 12,
    FIELD_RETENTION = 1 << 13,
    TASK_FIELDS = 14,
    FIELD_KIND = 1 << 0, FIELD_LOWER = 1 << 1, FIELD_UPPER = 1 << 2, FIELD_OUTSIDE = 1 << 3, FIELD_UNIT = 1 << 4,
    DOMAIN_FIELDS = 5
};

static const char *const TASK_NAMES[TASK_FIELDS] = {"id", "title", "purpose", "epsilon", "mechanism", "domain",
                                                    "rounds", "levels", "enrolled", "opens", "closes",
                                                    "release_from", "release_every", "retention"};
static const char *const DOMAIN_NAMES[DOMAIN_FIELDS] = {"kind", "lower", "upper", "outside", "unit"};

/* The bit of the next field, its name and colon taken: unknown once only, and known fields at most once. */
static hush_status read_name(reader *from, const char *const *names, size_t count, unsigned *seen, unsigned *field)
{
    char name[16];
    hush_status status = read_word(from, name, sizeof name);
    if (status != HUSH_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0 && !(*seen & 1u << i)) {
            *field = 1u << i;
            *seen |= *field;
            return take(from, ':') ? HUSH_OK : HUSH_MALFORMED;
        }
    }
    return HUSH_TASK;
}

typedef struct {
    hush_task *task;
    bool is_number;
    unsigned seen;
} draft;

static hush_status read_domain_field(reader *from, unsigned field, draft *to)
{
    char word[16];
    const char *text = NULL;
    size_t size = 0;
    hush_status status = HUSH_OK;
    switch (field) {
    case FIELD_LOWER:
        return read_bound(from, &to->task->lower);
    case FIELD_UPPER:
        return read_bound(from, &to->task->upper);
    case FIELD_UNIT:
        return read_line(from, 40, &text, &size);
    case FIELD_KIND:
        status = read_word(from, word, sizeof word);
        to->is_number = strcmp(word, "number") == 0;
        return status != HUSH_OK || to->is_number || strcmp(word, "bit") == 0 ? status : HUSH_TASK;
    default: /* outside */
        status = read_word(from, word, sizeof word); /* "refuse" is no more: silence would tell the value */
        return status != HUSH_OK || strcmp(word, "clamp") == 0 ? status : HUSH_TASK;
    }
}

static hush_status read_domain(reader *from, draft *to)
{
    unsigned seen = 0, field = 0;
    if (!take(from, '{')) {
        return HUSH_TASK;
    }
    do {
        hush_status status = read_name(from, DOMAIN_NAMES, DOMAIN_FIELDS, &seen, &field);
        if (status == HUSH_OK) {
            status = read_domain_field(from, field, to);
        }
        if (status != HUSH_OK) {
            return status;
        }
    } while (take(from, ','));
    if (!take(from, '}')) {
        return HUSH_MALFORMED;
    }
    const unsigned needed = FIELD_KIND | FIELD_LOWER | FIELD_UPPER | FIELD_OUTSIDE;
    return (seen & ~(unsigned)FIELD_UNIT) == needed || (seen == FIELD_KIND && !to->is_number) ? HUSH_OK : HUSH_TASK;
}

static hush_status read_mechanism(reader *from, hush_mechanism *out)
{
    static const char *const names[] = {"laplace", "multilevel", "randomized_response"};
    char word[24];
    hush_status status = read_word(from, word, sizeof word);
    for (int i = 0; status == HUSH_OK && i < 3; i++) {
        if (strcmp(word, names[i]) == 0) {
            *out = (hush_mechanism)(HUSH_LAPLACE + i);
            return HUSH_OK;
        }
    }
    return status == HUSH_OK ? HUSH_TASK : status;
}

static hush_status read_task_field(reader *from, unsigned field, draft *to)
{
    hush_task *task = to->task;
    const char *text = NULL;
    size_t size = 0;
    uint64_t count = 0;
    hush_status status = HUSH_OK;
    switch (field) {
    case FIELD_ID:
        status = read_word(from, task->id, sizeof task->id);
        return status != HUSH_OK || is_task_id(task->id) ? status : HUSH_TASK;
    case FIELD_TITLE:
        return read_line(from, 500, &text, &size);
    case FIELD_PURPOSE:
        return read_line(from, 500, &task->purpose, &task->purpose_bytes);
    case FIELD_EPSILON:
        return read_epsilon_text(from, task->epsilon, sizeof task->epsilon);
    case FIELD_MECHANISM:
        return read_mechanism(from, &task->mechanism);
    case FIELD_DOMAIN:
        return read_domain(from, to);
    case FIELD_ROUNDS:
        return read_count(from, 1, &count); /* more than one needs a durable memory of the rounds answered */
    case FIELD_LEVELS:
        status = read_count(from, HUSH_MOST_LEVELS, &count);
        task->levels = (uint32_t)count;
        return status;
    case FIELD_ENROLLED:
    case FIELD_RELEASE_FROM:
        return read_count(from, (UINT64_C(1) << 53) - 1, &count);
    case FIELD_OPENS:
        return read_moment(from, &task->opens);
    case FIELD_CLOSES:
        return read_moment(from, &task->closes);
    default: /* for the aggregator alone */
        return skip_length(from);
    }
}

static hush_status read_fields(reader *from, draft *to)
{
    unsigned field = 0;
    if (!take(from, '{')) {
        return HUSH_MALFORMED;
    }
    do {
        hush_status status = read_name(from, TASK_NAMES, TASK_FIELDS, &to->seen, &field);
        if (status == HUSH_OK) {
            status = read_task_field(from, field, to);
        }
        if (status != HUSH_OK) {
            return status;
        }
    } while (take(from, ','));
    if (!take(from, '}')) {
        return HUSH_MALFORMED;
    }
    skip_space(from);
    return from->at == from->end ? HUSH_OK : HUSH_MALFORMED;
}

/* Whether bounds are in order, and their difference is a finite binary64. */
static bool are_bounds(const hush_number *lower, const hush_number *upper)
{
    const int exponent = least_exponent(lower, upper);
    const big one = big_of(1);
    hush_number range;
    if (number_compare(lower, upper) >= 0) {
        return false;
    }
    big span = difference(upper, lower, exponent), unit = one;
    span = big_shift_left(&span, exponent > 0 ? (size_t)exponent : 0);
    unit = big_shift_left(&unit, exponent < 0 ? (size_t)-exponent : 0);
    return nearest(&span, &unit, &range);
}

static hush_status check_task(const draft *made, const decimal *limit)
{
    const hush_task *task = made->task;
    const unsigned needed = FIELD_ID | FIELD_EPSILON | FIELD_MECHANISM | FIELD_DOMAIN | FIELD_ROUNDS;
    const bool on_number = task->mechanism == HUSH_LAPLACE || task->mechanism == HUSH_MULTILEVEL;
    const bool has_levels = (made->seen & FIELD_LEVELS) != 0;
    decimal epsilon;
    if ((made->seen & needed) != needed || on_number != made->is_number ||
        has_levels != (task->mechanism == HUSH_MULTILEVEL) || task->closes <= task->opens) {
        return HUSH_TASK;
    }
    if (!read_epsilon(task->epsilon, &epsilon) || !at_most(&epsilon, limit)) {
        return HUSH_EPSILON;
    }
    return !made->is_number || are_bounds(&task->lower, &task->upper) ? HUSH_OK : HUSH_TASK;
}

hush_status hush_read_task(const uint8_t *payload, size_t size, const char *max_epsilon, hush_task *task)
{
    decimal limit;
    if (!payload || !task || !max_epsilon || !read_exact(max_epsilon, &limit)) {
        return HUSH_ARGUMENT;
    }
    memset(task, 0, sizeof *task);
    task->opens = INT64_MIN;
    task->closes = INT64_MAX;
    task->purpose = "";
    if (size > HUSH_TASK_BYTES) {
        return HUSH_TASK;
    }
    reader from = {(const char *)payload, (const char *)payload + size};
    draft made = {.task = task};
    hush_status status = is_text(payload, payload + size) ? read_fields(&from, &made) : HUSH_MALFORMED;
    if (status == HUSH_OK) {
        status = check_task(&made, &limit);
    }
    if (status == HUSH_OK) {
        hush_digest(payload, size, task->digest);
    } else {
        memset(task, 0, sizeof *task); /* so that nobody answers half a task: it is closed, and has no mechanism */
    }
    return status;
}

/* ---- recalls */

enum { RECALL_FIELDS = 5, CLOCK_SKEW = 300, LONGEST_SPREAD = 86400 };

static const char *const RECALL_NAMES[RECALL_FIELDS] = {"v", "task", "digest", "id", "over"};

hush_status hush_recall_topic(const char *task_id, char *out, size_t capacity)
{
    if (!task_id || !out || !is_task_id(task_id)) {
        return HUSH_ARGUMENT;
    }
    if (!capacity) {
        return HUSH_SPACE;
    }
    writer to = {out, capacity - 1, 0, false};
    put_text(&to, "hush/v1/recalls/");
    put_text(&to, task_id);
    out[to.size] = 0;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

static hush_status read_hex(reader *from, uint8_t *out, size_t count)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    char text[2 * HUSH_DIGEST_BYTES + 1]; /* the longest that a recall has */
    hush_status status = read_word(from, text, 2 * count + 1);
    if (status != HUSH_OK || strlen(text) != 2 * count) {
        return status == HUSH_OK ? HUSH_TASK : status;
    }
    memset(out, 0, count);
    for (size_t i = 0; i < 2 * count; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit) {
            return HUSH_TASK;
        }
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | ((digit - digits) & 15));
    }
    return HUSH_OK;
}

/* Seconds, from 0 to 2^53 - 1, clamped. */
static hush_status read_over(reader *from, uint32_t *spread)
{
    char text[18];
    uint64_t over = 0;
    hush_status status = read_number_text(from, text, sizeof text);
    if (status != HUSH_OK) {
        return status;
    }
    for (const char *at = text; *at; at++) {
        if (!is_digit(*at)) {
            return HUSH_TASK;
        }
        over = 10 * over + (uint64_t)(*at - '0');
    }
    *spread = over < 1 ? 1 : over > LONGEST_SPREAD ? LONGEST_SPREAD : (uint32_t)over;
    return over >> 53 ? HUSH_TASK : HUSH_OK;
}

static hush_status read_recall_field(reader *from, unsigned field, hush_recall *to)
{
    uint64_t version = 0;
    hush_status status = HUSH_OK;
    switch (field) {
    case 1:
        return read_count(from, 1, &version);
    case 1 << 1:
        status = read_word(from, to->task, sizeof to->task);
        return status == HUSH_OK && !is_task_id(to->task) ? HUSH_TASK : status;
    case 1 << 2:
        return read_hex(from, to->digest, sizeof to->digest);
    case 1 << 3:
        return read_hex(from, to->id, sizeof to->id);
    default:
        return read_over(from, &to->spread);
    }
}

static hush_status read_recall_fields(reader *from, hush_recall *to)
{
    unsigned seen = 0, field = 0;
    if (!take(from, '{')) {
        return HUSH_MALFORMED;
    }
    do {
        hush_status status = read_name(from, RECALL_NAMES, RECALL_FIELDS, &seen, &field);
        if (status == HUSH_OK) {
            status = read_recall_field(from, field, to);
        }
        if (status != HUSH_OK) {
            return status;
        }
    } while (take(from, ','));
    if (!take(from, '}')) {
        return HUSH_MALFORMED;
    }
    skip_space(from);
    return from->at != from->end ? HUSH_MALFORMED : seen == (1u << RECALL_FIELDS) - 1 ? HUSH_OK : HUSH_TASK;
}

hush_status hush_read_recall(const uint8_t *payload, size_t size, hush_recall *recall)
{
    if (!payload || !recall) {
        return HUSH_ARGUMENT;
    }
    memset(recall, 0, sizeof *recall);
    reader from = {(const char *)payload, (const char *)payload + size};
    hush_status status = HUSH_MALFORMED;
    if (size <= HUSH_RECALL_BYTES && is_text(payload, payload + size)) {
        status = read_recall_fields(&from, recall);
    }
    if (status != HUSH_OK) {
        memset(recall, 0, sizeof *recall); /* so that it asks for nothing: no task has an empty name */
    }
    return status;
}

bool hush_is_recalled(const hush_recall *recall, const char *task_id, const uint8_t *frame, size_t size)
{
    return recall && task_id && frame && size >= HUSH_HEADER_BYTES && *recall->task &&
           strcmp(recall->task, task_id) == 0 && memcmp(frame + 4, recall->digest, HUSH_REPORT_DIGEST_BYTES) == 0;
}

hush_status hush_recall_delay(const hush_recall *recall, hush_random source, void *context, uint32_t *milliseconds)
{
    if (!recall || !source || !milliseconds || recall->spread < 1 || recall->spread > LONGEST_SPREAD) {
        return HUSH_ARGUMENT;
    }
    const randomness from = {source, context};
    const big count = big_of(1000 * (uint64_t)recall->spread + 1);
    big drawn;
    hush_status status = random_below(&from, &count, &drawn);
    *milliseconds = status == HUSH_OK ? (uint32_t)big_low(&drawn) : 0;
    return status;
}

static int64_t later(int64_t moment, int64_t seconds)
{
    return moment > INT64_MAX - seconds ? INT64_MAX : moment + seconds;
}

int64_t hush_kept_until(int64_t acknowledged, int64_t closes, int64_t keep, const hush_recall *scheduled)
{
    if (keep <= 0) {
        return acknowledged;
    }
    if (scheduled) {
        return later(closes, CLOCK_SKEW + 2 * (int64_t)scheduled->spread);
    }
    const int64_t by_close = later(closes, CLOCK_SKEW);
    const int64_t by_age = later(acknowledged, keep < HUSH_KEEP_SECONDS ? keep : HUSH_KEEP_SECONDS);
    return by_close < by_age ? by_close : by_age;
}

const char *hush_message(hush_status status)
{
    switch (status) {
    case HUSH_OK:
        return "done";
    case HUSH_ARGUMENT:
        return "an argument is missing or outside its range; see hush.h";
    case HUSH_SPACE:
        return "the buffer is too small; see the sizes in hush.h";
    case HUSH_RANDOM:
        return "the source of randomness failed; nothing was answered";
    case HUSH_MALFORMED:
        return "the task is not a JSON object of printable UTF-8; fetch it again from its topic";
    case HUSH_TASK:
        return "the task has a field that is missing, unknown or illegal, or asks for more than this program can do";
    case HUSH_EPSILON:
        return "the task's epsilon is not exact, outside 0.000001 to 50, or above the limit of this device";
    case HUSH_NOT_OPEN:
        return "the task has not opened yet";
    case HUSH_CLOSED:
        return "the task is closed";
    case HUSH_MECHANISM:
        return "this program does not have the task's mechanism; docs/ports.md lists what it has";
    case HUSH_ROUNDS:
        return "the task has several rounds, which this program does not answer";
    case HUSH_TOO_LARGE:
        return "the task is too large for this program; docs/ports.md lists its limits";
    case HUSH_SPENT:
        return "the answer would exceed this device's budget for the task's purpose";
    case HUSH_ANSWERED:
        return "this round was answered before; the same report is sent until it is acknowledged";
    case HUSH_CHANGED:
        return "another task was admitted under this id before; publish the changed one under a new id";
    case HUSH_STORAGE:
        return "the state of this device cannot be read, written or trusted; nothing was answered";
    case HUSH_NONE:
        return "there is no such record";
    }
    return "unknown status";
}

/* ---- the operating system's randomness */

#ifndef HUSH_NO_OS_RANDOM
#ifdef __linux__
#include <errno.h>
#include <sys/random.h>

int hush_os_random(void *context, uint8_t *out, size_t count)
{
    (void)context;
    while (count) {
        ssize_t got = getrandom(out, count, 0); /* waits until the kernel has enough entropy */
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        if (got > 0) {
            out += got;
            count -= (size_t)got;
        }
    }
    return 0;
}
#else
#include <stdio.h>

int hush_os_random(void *context, uint8_t *out, size_t count)
{
    (void)context;
    FILE *device = fopen("/dev/urandom", "rb");
    if (!device) {
        return -1;
    }
    (void)setvbuf(device, NULL, _IONBF, 0); /* no byte is read twice, and none is left in a buffer */
    size_t got = fread(out, 1, count, device);
    (void)fclose(device);
    return got == count ? 0 : -1;
}
#endif
#endif
