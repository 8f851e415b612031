/* hush for devices that speak C; see hush.h. Written from docs/wire.md, which has the laws and their proofs. */
#include "hush_inside.h"

#include <limits.h>
#include <string.h>

/* What the build has, as constants: the compiler checks all code, and drops what is never reached. */
enum {
    HAS_LAPLACE = !HUSH_WITHOUT_LAPLACE,
    HAS_MULTILEVEL = !HUSH_WITHOUT_MULTILEVEL,
    HAS_TABLE = !HUSH_WITHOUT_TABLE,
    HAS_RESPONSE = !HUSH_WITHOUT_RANDOMIZED_RESPONSE,
    HAS_COINS = HAS_RESPONSE && !HUSH_WITHOUT_COINS,
    HAS_SUBSET = !HUSH_WITHOUT_SUBSET_SELECTION,
    HAS_VECTOR = !HUSH_WITHOUT_VECTOR,
    HAS_STICKY = !HUSH_WITHOUT_STICKY && (HAS_MULTILEVEL || HAS_RESPONSE),
    HERE = HAS_LAPLACE << HUSH_LAPLACE | HAS_MULTILEVEL << HUSH_MULTILEVEL | HAS_TABLE << HUSH_TABLE |
           HAS_RESPONSE << HUSH_RANDOMIZED_RESPONSE | HAS_SUBSET << HUSH_SUBSET_SELECTION | HAS_VECTOR << HUSH_VECTOR
};

static bool is_here(hush_mechanism mechanism)
{
    return (unsigned)HERE >> mechanism & 1;
}

/* Whether a task has this mechanism, and the build too. */
static bool is_by(const hush_task *task, hush_mechanism mechanism)
{
    return is_here(mechanism) && task->mechanism == mechanism;
}

_Static_assert(CHAR_BIT == 8 && INT_MAX >= 0x7fffffff, "needs bytes of 8 bits and an int of 32");

/* ---- what a C library has, in fewer bytes */

size_t hush_length(const char *text)
{
    const char *end = text;
    while (*end) {
        end++;
    }
    return (size_t)(end - text);
}

APART void hush_copy(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

bool hush_is_equal(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

bool hush_is_same(const void *a, const void *b, size_t size)
{
    const uint8_t *x = a, *y = b;
    while (size && *x++ == *y++) {
        size--;
    }
    return !size;
}

bool hush_is_one_of(char c, const char *letters)
{
    while (*letters && *letters != c) {
        letters++;
    }
    return *letters != 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits_of(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count])) {
        count++;
    }
    return count;
}

bool hush_is_name(const char *text, size_t most, const char *others)
{
    size_t size = 0;
    while (is_digit(text[size]) || (text[size] >= 'a' && text[size] <= 'z') || hush_is_one_of(text[size], others)) {
        size++;
    }
    return size >= 1 && size <= most && !text[size];
}

uint64_t hush_divide(uint64_t a, uint64_t by, uint64_t *rest)
{
    uint64_t left = 0;
    for (int bit = 0; bit < 64; bit++) {
        left = left << 1 | a >> 63;
        a <<= 1;
        if (left >= by) {
            left -= by;
            a |= 1;
        }
    }
    if (rest) {
        *rest = left;
    }
    return a;
}

void hush_put(uint8_t *at, size_t bytes, uint64_t value)
{
    while (bytes--) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

uint64_t hush_get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    while (bytes--) {
        value = value << 8 | *at++;
    }
    return value;
}

void hush_spell(char *out, const uint8_t *bytes, size_t count)
{
    for (; count; count--, bytes++) {
        *out++ = "0123456789abcdef"[*bytes >> 4];
        *out++ = "0123456789abcdef"[*bytes & 15];
    }
    *out = 0;
}

int64_t hush_later(int64_t moment, int64_t by)
{
    return moment > INT64_MAX - by ? INT64_MAX : moment + by;
}

/* ---- unsigned integers of up to 2560 bits: enough for the difference of any two binary64 numbers
 *
 * All work in place, because each takes 328 bytes of the stack. A result that does not fit is `broken`, and so is
 * every result that is computed from it; a function that reads a number out checks this. */

enum { LIMBS = 80 };

typedef struct {
    bool broken;
    size_t used; /* the highest limb in use is not zero, and those above it are */
    uint32_t limb[LIMBS];
} big;

static void big_set(big *a, uint64_t value)
{
    memset(a, 0, sizeof *a);
    for (; value; value >>= 32) {
        a->limb[a->used++] = (uint32_t)value;
    }
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

/* The lowest 64 bits. */
static uint64_t big_low(const big *a)
{
    return (uint64_t)a->limb[1] << 32 | a->limb[0];
}

/* Puts a limb above those in use, if it is not zero. */
static void big_push(big *a, uint64_t limb)
{
    a->broken = a->broken || (limb && a->used == LIMBS);
    if (limb && a->used < LIMBS) {
        a->limb[a->used++] = (uint32_t)limb;
    }
}

/* a += b */
static void big_add(big *a, const big *b)
{
    uint64_t carry = 0;
    a->used = a->used > b->used ? a->used : b->used;
    a->broken = a->broken || b->broken;
    for (size_t i = 0; i < a->used; i++) {
        carry += (uint64_t)a->limb[i] + b->limb[i]; /* limbs not in use are zero */
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    big_push(a, carry);
}

/* a -= b; broken if b is larger. */
static void big_subtract(big *a, const big *b)
{
    uint64_t borrow = 0;
    a->broken = a->broken || b->broken || big_compare(a, b) < 0;
    for (size_t i = 0; i < a->used && !a->broken; i++) {
        const uint64_t left = (uint64_t)a->limb[i] - b->limb[i] - borrow;
        a->limb[i] = (uint32_t)left;
        borrow = left >> 63;
    }
    big_trim(a);
}

/* a = a * by + add */
static void big_multiply_add(big *a, uint32_t by, uint32_t add)
{
    uint64_t carry = add;
    for (size_t i = 0; i < a->used; i++) {
        carry += (uint64_t)a->limb[i] * by;
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    big_push(a, carry);
    big_trim(a);
}

static void big_add_small(big *a, uint32_t add)
{
    big_multiply_add(a, 1, add);
}

/* a -= 1; broken if it is zero. */
static void big_decrease(big *a)
{
    a->broken = a->broken || !a->used;
    for (size_t i = 0; i < a->used; i++) {
        if (a->limb[i]--) { /* else it borrows from the next */
            break;
        }
    }
    big_trim(a);
}

/* a *= b */
static void big_multiply(big *a, const big *b)
{
    big r;
    big_set(&r, 0);
    r.broken = a->broken || b->broken || a->used + b->used > LIMBS;
    for (size_t i = 0; i < a->used && !r.broken; i++) {
        uint64_t carry = 0;
        for (size_t j = 0; j < b->used; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + r.limb[i + j];
            r.limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        r.limb[i + b->used] = (uint32_t)carry;
    }
    r.used = r.broken ? 0 : a->used + b->used;
    big_trim(&r);
    *a = r;
}

/* a *= 2^by */
static void big_shift_left(big *a, size_t by)
{
    const size_t words = by / 32, bits = by % 32, used = a->used;
    a->broken = a->broken || (used && used + words + 1 > LIMBS);
    if (a->broken || !used) {
        return;
    }
    a->used = used + words + 1;
    for (size_t i = a->used; i-- > 0;) { /* from above, so that nothing is overwritten before it is read */
        const uint64_t high = i >= words && i - words < used ? a->limb[i - words] : 0;
        const uint64_t low = i > words ? a->limb[i - words - 1] : 0;
        a->limb[i] = (uint32_t)((high << 32 | low) << bits >> 32);
    }
    big_trim(a);
}

/* a = floor(a / 2^by) */
static void big_shift_right(big *a, size_t by)
{
    const size_t words = by / 32, bits = by % 32;
    for (size_t i = 0; i < a->used; i++) {
        const uint64_t low = i + words < a->used ? a->limb[i + words] : 0;
        const uint64_t high = i + words + 1 < a->used ? a->limb[i + words + 1] : 0;
        a->limb[i] = (uint32_t)((high << 32 | low) >> bits);
    }
    big_trim(a);
}

/* quotient = floor(a / b), and a becomes the remainder; `quotient` may be NULL. */
static void big_divide(big *a, const big *b, big *quotient)
{
    big part = *b;
    if (quotient) {
        big_set(quotient, 0);
    }
    a->broken = a->broken || b->broken || b->used == 0;
    if (!a->broken && big_compare(a, b) >= 0) {
        size_t shift = big_bits(a) - big_bits(b);
        big_shift_left(&part, shift);
        a->broken = part.broken;
        for (shift++; !a->broken && shift-- > 0; big_shift_right(&part, 1)) {
            if (big_compare(a, &part) < 0) {
                continue;
            }
            big_subtract(a, &part);
            if (quotient) {
                quotient->used = quotient->used ? quotient->used : shift / 32 + 1;
                quotient->limb[shift / 32] |= UINT32_C(1) << shift % 32;
            }
        }
    }
    if (quotient) {
        quotient->broken = a->broken;
    }
}

/* a = floor(a / by), or rounded up where asked: several after each other, as by the product. */
static void big_divide_small(big *a, uint32_t by, bool up)
{
    uint64_t rest = 0;
    for (size_t i = a->used; i-- > 0;) {
        uint32_t limb = a->limb[i];
        for (int bit = 0; bit < 32; bit++) {
            rest = rest << 1 | limb >> 31;
            limb <<= 1;
            if (rest >= by) {
                rest -= by;
                limb |= 1;
            }
        }
        a->limb[i] = limb;
    }
    big_trim(a);
    big_add_small(a, up && rest);
}

static void big_multiply_by_power_of_ten(big *a, size_t exponent)
{
    for (; exponent; exponent--) {
        big_multiply_add(a, 10, 0);
    }
}

/* a = the greatest common divisor of a and b. */
APART static void big_reduce(big *a, const big *b)
{
    big rest = *b;
    while (rest.used && !rest.broken) {
        big_divide(a, &rest, NULL);
        for (size_t i = 0; i < LIMBS; i++) { /* swap */
            const uint32_t limb = a->limb[i];
            a->limb[i] = rest.limb[i];
            rest.limb[i] = limb;
        }
        const size_t used = a->used;
        a->used = rest.used;
        rest.used = used;
    }
    a->broken = a->broken || rest.broken;
}

/* a and b over their greatest common divisor. */
APART static void reduce(big *a, big *b)
{
    big common = *a, quotient;
    big_reduce(&common, b);
    big_divide(a, &common, &quotient);
    *a = quotient;
    big_divide(b, &common, &quotient);
    *b = quotient;
}

/* The same of at most 160 bits, for the many weights of a table: a sum of 16 384 of up to 2^128 fits. */

enum { WIDE_LIMBS = 5 };

typedef struct {
    uint32_t limb[WIDE_LIMBS];
} wide;

static int wide_compare(const wide *a, const wide *b)
{
    for (size_t i = WIDE_LIMBS; i-- > 0;) {
        if (a->limb[i] != b->limb[i]) {
            return a->limb[i] < b->limb[i] ? -1 : 1;
        }
    }
    return 0;
}

/* a = a * by + b; what does not fit is lost, so the caller limits the numbers. */
static void wide_multiply_add(wide *a, uint32_t by, const wide *b)
{
    uint64_t carry = 0;
    for (size_t i = 0; i < WIDE_LIMBS; i++) {
        carry += (uint64_t)a->limb[i] * by + b->limb[i];
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* a -= b, which is not larger. */
APART static void wide_subtract(wide *a, const wide *b)
{
    uint64_t borrow = 0;
    for (size_t i = 0; i < WIDE_LIMBS; i++) {
        const uint64_t left = (uint64_t)a->limb[i] - b->limb[i] - borrow;
        a->limb[i] = (uint32_t)left;
        borrow = left >> 63;
    }
}

static bool wide_is_zero(const wide *a)
{
    const wide zero = {{0}};
    return wide_compare(a, &zero) == 0;
}

static void big_set_wide(big *a, const wide *value)
{
    big_set(a, 0);
    memcpy(a->limb, value->limb, sizeof value->limb);
    a->used = WIDE_LIMBS;
    big_trim(a);
}

/* The lowest 160 bits. */
static wide wide_of(const big *a)
{
    wide r;
    memcpy(r.limb, a->limb, sizeof r.limb);
    return r;
}

/* ---- decimal text to binary64, correctly rounded, without a float: the same number on every machine */

/* numerator / denominator to the nearest binary64, ties to even, both of which are used up; false if it overflows or
 * cannot be computed. */
APART static bool nearest(big *numerator, big *denominator, hush_number *out)
{
    int exponent = (int)big_bits(numerator) - (int)big_bits(denominator) - 53;
    big quotient;
    *out = (hush_number){0};
    if (numerator->broken || denominator->broken || !denominator->used) {
        return false;
    }
    if (!numerator->used) {
        return true;
    }
    exponent = exponent < -1074 ? -1074 : exponent;
    big_shift_left(numerator, exponent < 0 ? (size_t)-exponent : 0);
    big_shift_left(denominator, (exponent > 0 ? (size_t)exponent : 0) + 53);
    const bool is_long = big_compare(numerator, denominator) >= 0; /* the quotient would have 54 bits */
    big_shift_right(denominator, is_long ? 52 : 53);
    exponent += is_long;
    big_divide(numerator, denominator, &quotient);
    if (quotient.broken) {
        return false;
    }
    big_shift_left(numerator, 1);
    const int half = big_compare(numerator, denominator);
    out->mantissa = big_low(&quotient);
    out->mantissa += half > 0 || (half == 0 && (out->mantissa & 1));
    out->exponent = out->mantissa ? exponent : 0;
    big_set(&quotient, out->mantissa);
    return !numerator->broken && (int)big_bits(&quotient) + exponent <= 1024;
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

/* digits * 10^exponent to the nearest binary64; its digits are not all zero and at most 100. */
APART static void scale(big *digits, int exponent, hush_number *out)
{
    big power;
    big_set(&power, 1);
    big_multiply_by_power_of_ten(exponent < 0 ? &power : digits, (size_t)(exponent < 0 ? -exponent : exponent));
    if (!nearest(digits, &power, out)) {
        *out = (hush_number){false, 1, BEYOND};
    }
}

/* [+-] digits [. digits] [e [+-] digits], at least one digit, or [+-] inf or infinity; at most 100 characters.
 * What is beyond all binary64 numbers has the exponent BEYOND. False: no such text. */
APART static bool read_decimal(const char *text, size_t size, hush_number *out)
{
    const char *at = text, *end = text + size;
    big digits;
    int exponent = 0, typed = 0, written = 0, count = 0;
    bool point = false, negative = false, down = false;
    big_set(&digits, 0);
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
        big_multiply_add(&digits, 10, (uint32_t)(*at - '0'));
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
    } else if (count + exponent > 310) {
        *out = (hush_number){false, 1, BEYOND};
    } else {
        scale(&digits, exponent, out);
    }
    out->negative = negative && out->mantissa;
    return true;
}

/* In units of 2^exponent. */
static void set_magnitude(big *out, const hush_number *a, int exponent)
{
    big_set(out, a->mantissa);
    big_shift_left(out, (size_t)(a->exponent - exponent));
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

APART static int number_compare(const hush_number *a, const hush_number *b)
{
    const int exponent = least_exponent(a, b);
    big x, y;
    set_magnitude(&x, a, exponent);
    set_magnitude(&y, b, exponent);
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    return a->negative ? big_compare(&y, &x) : big_compare(&x, &y);
}

/* out = a - b in units of 2^exponent; broken if that is negative. */
APART static void set_difference(big *out, const hush_number *a, const hush_number *b, int exponent)
{
    const bool same = a->negative == b->negative;
    big other;
    set_magnitude(out, same && a->negative ? b : a, exponent); /* of two negative numbers the magnitudes change sides */
    set_magnitude(&other, same && a->negative ? a : b, exponent);
    if (same) {
        big_subtract(out, &other);
    } else {
        big_add(out, &other);
        out->broken = out->broken || a->negative;
    }
}

/* ---- epsilon: an exact fraction, and a certified integer weight made of it */

typedef struct {
    big numerator;
    size_t places;
    uint32_t divisor; /* epsilon = numerator / (10^places * divisor) */
} fraction;

/* 1 to 3 digits [. 1 to 18 digits] [e [-] digit]: what hush admits; anything else is no exact epsilon. */
static bool read_exact(const char *text, fraction *out)
{
    size_t written = 0, places = 0, shift = 0;
    bool point = false, down = false;
    big_set(&out->numerator, 0);
    out->divisor = 1;
    for (;; text++) {
        if (*text == '.' && !point && written) {
            point = true;
            continue;
        }
        if (!is_digit(*text)) {
            break;
        }
        big_multiply_add(&out->numerator, 10, (uint32_t)(*text - '0'));
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
    big_multiply_by_power_of_ten(&out->numerator, down ? 0 : shift);
    out->places = places + (down ? shift : 0);
    return !*text && !out->numerator.broken;
}

/* a *= the denominator of b */
static void multiply_by_denominator(big *a, const fraction *b)
{
    big_multiply_by_power_of_ten(a, b->places);
    big_multiply_add(a, b->divisor, 0);
}

/* a <= b, exactly. */
APART static bool at_most(const fraction *a, const fraction *b)
{
    big left = a->numerator, right = b->numerator;
    multiply_by_denominator(&left, b);
    multiply_by_denominator(&right, a);
    return !left.broken && !right.broken && big_compare(&left, &right) <= 0;
}

/* Compares with numerator / 10^places. */
APART static bool is_between(const fraction *a, uint32_t least, size_t places, uint32_t most)
{
    fraction bound = {.places = places, .divisor = 1};
    big_set(&bound.numerator, least);
    if (!at_most(&bound, a)) {
        return false;
    }
    big_set(&bound.numerator, most);
    bound.places = 0;
    return at_most(a, &bound);
}

static bool is_epsilon(const fraction *a)
{
    return is_between(a, 1, 6, 50);
}

static bool read_epsilon(const char *text, fraction *out)
{
    return read_exact(text, out) && is_epsilon(out);
}

enum { TRUTH_BITS = 128, PRECISION = 512 };

/* e^epsilon * 2^512 from below, or from above: Taylor's series with every term rounded that way. After the last term
 * J > 2 * epsilon the remainder of the series is below that term. */
APART static hush_status bound_exp(const fraction *epsilon, bool up, big *out)
{
    big term;
    big_set(&term, 1);
    big_shift_left(&term, PRECISION);
    *out = term;
    for (uint32_t j = 1; j <= 100 || term.used > 1 || term.limb[0] > 1; j++) { /* 100 = 2 * 50 */
        big_multiply(&term, &epsilon->numerator);
        for (size_t place = 0; place < epsilon->places; place++) {
            big_divide_small(&term, 10, up);
        }
        big_divide_small(&term, epsilon->divisor, up);
        big_divide_small(&term, j, up);
        big_add(out, &term);
        if (j > 1000 || out->broken) {
            return HUSH_EPSILON; /* cannot happen for an epsilon of at most 50 */
        }
    }
    if (up) {
        big_add(out, &term);
    }
    return HUSH_OK;
}

/* a = floor(2^128 / e^epsilon), with one of the bounds. */
APART static hush_status divide_by_exp(const fraction *epsilon, bool up, big *a)
{
    big bound, whole;
    hush_status status = bound_exp(epsilon, up, &bound);
    big_set(&whole, 1);
    big_shift_left(&whole, PRECISION + TRUTH_BITS);
    big_divide(&whole, &bound, a);
    return status;
}

/* floor(2^128 * e^-epsilon) + 1, certified: both bounds of e^epsilon give this. */
APART static hush_status weight_of_lie(const fraction *epsilon, big *weight)
{
    big below;
    hush_status status = divide_by_exp(epsilon, false, weight);
    if (status == HUSH_OK) {
        status = divide_by_exp(epsilon, true, &below);
    }
    if (status == HUSH_OK && (weight->broken || below.broken || big_compare(weight, &below) != 0)) {
        return HUSH_EPSILON; /* cannot happen: e^epsilon is irrational, and 300 bits are to spare */
    }
    big_add_small(weight, 1);
    return status;
}

/* ---- draws; bytes are taken in the order in which the Python client takes them */

typedef struct {
    hush_random fill;
    void *context;
} randomness;

enum {
    MOST_TRIES = 64,       /* each fails with probability below 1/256 */
    MOST_FLIPS = 1000,     /* flip k happens with probability 1/k! at most */
    MOST_QUOTIENT = 10000, /* reached with probability e^-10000; all three are one in 2^500 or less: a broken source */
    MOST_BYTES = 192       /* of one draw; the longest is that of a vector */
};

/* A uniform integer below 256^size. */
APART static hush_status random_bytes(const randomness *source, size_t size, big *out)
{
    uint8_t bytes[MOST_BYTES];
    big_set(out, 0);
    if (source->fill(source->context, bytes, size) != 0) {
        return HUSH_RANDOM;
    }
    for (size_t i = 0; i < size; i++) {
        const size_t place = size - 1 - i;
        out->limb[place / 4] |= (uint32_t)bytes[i] << 8 * (place % 4);
    }
    out->used = (size + 3) / 4;
    big_trim(out);
    return HUSH_OK;
}

/* A uniform integer in [0, n), by rejection. */
APART static hush_status random_below(const randomness *source, const big *n, big *out)
{
    const size_t size = (big_bits(n) + 15) / 8;
    big last;
    if (n->broken || !n->used || size > MOST_BYTES) {
        return HUSH_ARGUMENT;
    }
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        hush_status status = random_bytes(source, size, out);
        if (status != HUSH_OK) {
            return status;
        }
        last = *out;
        big_divide(out, n, NULL);
        big_subtract(&last, out);
        big_add(&last, n);
        big_decrease(&last); /* this draw is one of the n up to here: if all of them are possible, they are */
        if (big_bits(&last) <= 8 * size) { /* equally likely, and so is every remainder */
            return last.broken || out->broken ? HUSH_ARGUMENT : HUSH_OK;
        }
    }
    return HUSH_RANDOM;
}

/* True with probability exactly e^(-numerator/denominator), numerator <= denominator (Canonne, Kamath and Steinke
 * 2020, algorithm 1). */
APART static hush_status bernoulli_exp(const randomness *source, const big *numerator, const big *denominator,
                                       bool *out)
{
    const bool certain = big_compare(numerator, denominator) == 0; /* a draw below 1 out of 1 */
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

APART static hush_status geometric_quotient(const randomness *source, uint32_t *out)
{
    big one;
    big_set(&one, 1);
    for (*out = 0; *out < MOST_QUOTIENT; ++*out) {
        bool more = false;
        hush_status status = bernoulli_exp(source, &one, &one, &more);
        if (status != HUSH_OK || !more) {
            return status;
        }
    }
    return HUSH_RANDOM;
}

/* Exact discrete Laplace noise of scale t/s (same source, algorithm 2), as sign and magnitude. */
APART static hush_status discrete_laplace(const randomness *source, const big *s, const big *t, bool *negative,
                                          big *out)
{
    big total;
    for (int tries = 0; tries < MOST_FLIPS; tries++) {
        uint32_t quotient = 0;
        bool accepted = false;
        total = *t;
        big_shift_left(&total, 1);
        hush_status status = random_below(source, &total, out);
        *negative = out->limb[0] & 1;
        big_shift_right(out, 1);
        if (status == HUSH_OK) {
            status = bernoulli_exp(source, out, t, &accepted);
        }
        if (status == HUSH_OK && accepted) {
            status = geometric_quotient(source, &quotient);
        }
        if (status != HUSH_OK) {
            return status;
        }
        if (!accepted) {
            continue;
        }
        total = *t;
        big_multiply_add(&total, quotient, 0);
        big_add(&total, out);
        big_divide(&total, s, out);
        if (*negative && !out->used) {
            continue; /* zero has one sign */
        }
        return out->broken ? HUSH_ARGUMENT : HUSH_OK;
    }
    return HUSH_RANDOM;
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

APART static void sha_block(uint32_t state[8], const uint8_t block[64])
{
    uint32_t w[64], v[8];
    for (size_t i = 0; i < 16; i++) {
        w[i] = (uint32_t)hush_get(block + 4 * i, 4);
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
        v[3] += first;
        for (size_t j = 0; j < 8; j++) { /* each takes the place of the next */
            const uint32_t moved = v[j];
            v[j] = first;
            first = moved;
        }
        v[0] += second;
    }
    for (size_t i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

void hush_digest(const uint8_t *payload, size_t size, uint8_t digest[HUSH_DIGEST_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t block[64];
    const size_t end = (size + 8) / sizeof block * sizeof block + sizeof block; /* of the padded payload */
    for (size_t at = 0; at < end; at += sizeof block) {
        const size_t left = at < size ? size - at : 0, whole = left < sizeof block ? left : sizeof block;
        memset(block, 0, sizeof block);
        if (whole) {
            memcpy(block, payload + at, whole);
        }
        if (at + whole == size && whole < sizeof block) {
            block[whole] = 0x80;
        }
        if (at + sizeof block == end) {
            hush_put(block + 56, 8, (uint64_t)size * 8);
        }
        sha_block(state, block);
    }
    for (size_t i = 0; i < 8; i++) {
        hush_put(digest + 4 * i, 4, state[i]);
    }
}

/* ---- the wire */

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
    hush_put(at, 4, UINT32_C(2) << 24 | (uint32_t)(8 * width)); /* the version, and how long a body is */
    hush_copy(at + 4, digest, HUSH_REPORT_DIGEST_BYTES);
    hush_put(at + 4 + HUSH_REPORT_DIGEST_BYTES, 4, round);
    at += HUSH_HEADER_BYTES;
    for (size_t report = 0; report < count; report++) {
        hush_copy(at, ids + HUSH_ID_BYTES * report, HUSH_ID_BYTES);
        at += HUSH_ID_BYTES;
        for (size_t i = 0; i < width; i++, at += 8) {
            hush_put(at, 8, (uint64_t)bodies[width * report + i]);
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
    size_t size = hush_length(text);
    to->full = to->full || to->capacity - to->size < size;
    if (!to->full) {
        memcpy(to->out + to->size, text, size);
        to->size += size;
    }
}

/* A number of at most 243 digits, which is used up. */
static void put_big(writer *to, big *value)
{
    const uint32_t unit = 1000000000;
    uint32_t part[27];
    size_t count = 0;
    do {
        const uint32_t low = value->limb[0];
        big_divide_small(value, unit, false);
        part[count++] = low - value->limb[0] * unit;
    } while (value->used && count < sizeof part / sizeof *part);
    to->full = to->full || value->used || value->broken;
    for (bool is_first = true; count; is_first = false) {
        char digits[10] = {0}, *at = digits;
        uint32_t rest = part[--count];
        for (size_t place = 9; place-- > 0; rest /= 10) {
            digits[place] = (char)('0' + rest % 10);
        }
        while (is_first && *at == '0' && at[1]) {
            at++;
        }
        put_text(to, at);
    }
}

/* By hand: the printf of a small libc may not know 64 bits, and would say nothing. */
static void put_number(writer *to, uint64_t value, bool negative)
{
    big digits;
    big_set(&digits, value);
    put_text(to, negative ? "-" : "");
    put_big(to, &digits);
}

static void put_hex(writer *to, const uint8_t *bytes)
{
    char text[2 * HUSH_ID_BYTES + 1];
    hush_spell(text, bytes, HUSH_ID_BYTES);
    put_text(to, text);
}

_Static_assert(HUSH_ID_BYTES == (int)HUSH_REPORT_DIGEST_BYTES, "both are put by the same function");

static bool is_task_id(const char *text)
{
    return *text != '-' && hush_is_name(text, 64, "-");
}

static bool is_sender(const char *text)
{
    return !hush_is_one_of(*text, "._@:-") && hush_is_name(text, 128, "ABCDEFGHIJKLMNOPQRSTUVWXYZ._@:-");
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
    put_hex(&to, digest);
    put_text(&to, "\",\"round\":");
    put_number(&to, round, false);
    put_text(&to, ",\"id\":\"");
    put_hex(&to, id);
    put_text(&to, "\",\"body\":[");
    for (size_t i = 0; i < width; i++) {
        put_text(&to, i ? "," : "");
        put_number(&to, body[i] < 0 ? 0 - (uint64_t)body[i] : (uint64_t)body[i], body[i] < 0);
    }
    put_text(&to, "]}");
    *size = to.size;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

/* hush/v1/KIND/TASK, of a report with its sender. */
static hush_status put_topic(const char *kind, const char *task_id, const char *sender, char *out, size_t capacity)
{
    if (!task_id || !sender || !out || !is_task_id(task_id)) {
        return HUSH_ARGUMENT;
    }
    if (!capacity) {
        return HUSH_SPACE;
    }
    writer to = {out, capacity - 1, 0, false};
    put_text(&to, "hush/v1/");
    put_text(&to, kind);
    put_text(&to, task_id);
    put_text(&to, *sender ? "/" : "");
    put_text(&to, sender);
    out[to.size] = 0;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

hush_status hush_report_topic(const char *task_id, const char *sender, char *out, size_t capacity)
{
    return sender && is_sender(sender) ? put_topic("reports/", task_id, sender, out, capacity) : HUSH_ARGUMENT;
}

hush_status hush_recall_topic(const char *task_id, char *out, size_t capacity)
{
    return put_topic("recalls/", task_id, "", out, capacity);
}

/* ---- reading a task: only what is understood completely; everything else is refused */

typedef struct {
    const char *at, *end;
} reader;

static void skip_space(reader *from)
{
    while (from->at < from->end && hush_is_one_of(*from->at, " \t\r\n")) {
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

/* Characters that no text has: controls, formats, white space but the space, private use; docs/wire.md has the list.
 * How far it is to the beginning of the next range, and to its end: seven bits a byte, and the eighth in the last. */
static const uint8_t UNPRINTABLE[] = {
    0xff, 0xa2, 0x8c, 0x81, 0x0a, 0xd2, 0x86, 0x96, 0x81, 0x01, 0xc0, 0x81, 0xb1, 0x81, 0x03, 0x80, 0x82, 0xd0, 0x81,
    0x1b, 0x9d, 0x81, 0x03, 0x8d, 0x81, 0x0f, 0xf1, 0x90, 0x98, 0x88, 0xaf, 0x91, 0x1f, 0x90, 0x81, 0x02, 0x4f, 0xff,
    0x42, 0x80, 0x09, 0xd0, 0xa0, 0x02, 0x8f, 0x81, 0x01, 0xf0, 0x8c, 0x21, 0xc1, 0x81, 0x8f, 0x81, 0x46, 0xe2, 0x90,
    0x02, 0x10, 0xe0, 0x84, 0x29, 0xcf, 0x88, 0x30, 0x5d, 0x85, 0x02, 0x80, 0x01, 0xf0, 0x1c, 0x90, 0x03, 0x60, 0x80,
    0x08, 0x00, 0x80,
};

static bool is_printable(uint32_t point)
{
    uint32_t end = 0, step = 0;
    bool is_inside = true;
    for (size_t i = 0; i < sizeof UNPRINTABLE && end <= point; i++) {
        step = step << 7 | (UNPRINTABLE[i] & 0x7fu);
        if (UNPRINTABLE[i] & 0x80) {
            end += step;
            step = 0;
            is_inside = !is_inside;
        }
    }
    return !is_inside && (point & 0xfffe) != 0xfffe; /* the last two of each plane are no characters */
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
        if (*from->at == '\\' && (++from->at == from->end || !hush_is_one_of(*from->at, "\"\\"))) {
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
    if (size >= capacity) {
        return HUSH_TASK;
    }
    memcpy(out, text, size);
    out[size] = 0;
    return hush_is_one_of('\\', out) ? HUSH_TASK : HUSH_OK;
}

/* The characters of a JSON number, shorter than `capacity`. */
static hush_status read_number_text(reader *from, char *out, size_t capacity)
{
    skip_space(from);
    size_t size = 0;
    *out = 0;
    while (size < (size_t)(from->end - from->at) && hush_is_one_of(from->at[size], "+-.0123456789eE")) {
        size++;
    }
    if (!size || size >= capacity) {
        return HUSH_TASK;
    }
    memcpy(out, from->at, size);
    out[size] = 0;
    from->at += size;
    const char *digits = out + (*out == '-');
    const char *point = digits + digits_of(digits);
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
    return read_decimal(text, hush_length(text), out) && out->exponent != BEYOND ? HUSH_OK : HUSH_TASK;
}

/* An integer from 0 to 2^53 - 1. */
static hush_status read_natural(reader *from, uint64_t *out)
{
    char text[18];
    hush_status status = read_number_text(from, text, sizeof text);
    *out = 0;
    for (const char *at = text; *at && status == HUSH_OK; at++) {
        status = is_digit(*at) ? HUSH_OK : HUSH_TASK;
        *out = 10 * *out + (uint64_t)(*at - '0');
    }
    return status == HUSH_OK && *out >> 53 ? HUSH_TASK : status;
}

static hush_status read_count(reader *from, uint32_t most, uint32_t *out)
{
    uint64_t count = 0;
    hush_status status = read_natural(from, &count);
    *out = (uint32_t)count;
    return status != HUSH_OK || (count >= 1 && count <= most) ? status : HUSH_TASK;
}

/* Text as hush publishes it, or a JSON integer; never a float, because 0.1 is not one tenth. */
static hush_status read_epsilon_text(reader *from, char *out, size_t capacity)
{
    skip_space(from);
    if (from->at < from->end && *from->at == '"') {
        return read_word(from, out, capacity);
    }
    hush_status status = read_number_text(from, out, capacity);
    return status == HUSH_OK && out[digits_of(out)] ? HUSH_EPSILON : status;
}

/* "2026-01-31T23:00:00Z", as hush publishes it, to Unix seconds. */
static hush_status read_moment(reader *from, int64_t *out)
{
    enum { CENTURY, YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, PARTS };
    static const char ends[PARTS] = {0, '-', '-', 'T', ':', ':', 'Z'};
    static const uint8_t most[PARTS] = {99, 99, 12, 31, 23, 59, 59};
    char text[24];
    const char *at = text;
    int part[PARTS];
    hush_status status = read_word(from, text, sizeof text);
    if (status != HUSH_OK) {
        return status;
    }
    for (int i = 0; i < PARTS; i++) {
        if (!is_digit(at[0]) || !is_digit(at[1])) {
            return HUSH_TASK;
        }
        part[i] = 10 * (at[0] - '0') + (at[1] - '0');
        at += 2;
        if (part[i] > most[i] || (ends[i] && *at++ != ends[i])) {
            return HUSH_TASK;
        }
    }
    const int year = 100 * part[CENTURY] + part[YEAR], past = year - 1, month = part[MONTH], day = part[DAY];
    const bool leap = ((part[YEAR] ? part[YEAR] : part[CENTURY]) & 3) == 0;
    const int length = month == 2 ? 28 + leap : 30 + ((month + month / 8) & 1);
    if (*at || year < 1 || month < 1 || day < 1 || day > length) {
        return HUSH_TASK;
    }
    const int before = (367 * month - 362) / 12 - (month > 2 ? 2 - leap : 0); /* days of the months before */
    const int days = 365 * past + past / 4 - past / 100 + past / 100 / 4 + before + day;
    *out = (days - 719163) * INT64_C(86400) + part[HOUR] * 3600 + part[MINUTE] * 60 + part[SECOND];
    return HUSH_OK;
}

static const int64_t LONGEST_LENGTH = INT64_C(86399999913600); /* seconds: 999 999 999 days */
static const int64_t LONGEST_POLICY = INT64_C(315360000);      /* 3650 days */

/* "30d", as hush publishes a length of time, in seconds. */
static hush_status read_length(reader *from, int64_t *out, int64_t most)
{
    static const char units[5] = {'s', 'm', 'h', 'd', 'w'};
    static const uint32_t seconds[5] = {1, 60, 3600, 86400, 604800};
    char word[11];
    int64_t count = 0;
    size_t digits = 0, unit = 0;
    hush_status status = read_word(from, word, sizeof word);
    if (status != HUSH_OK) {
        return status;
    }
    for (; is_digit(word[digits]); digits++) {
        count = 10 * count + (word[digits] - '0');
    }
    while (unit < 5 && units[unit] != word[digits]) {
        unit++;
    }
    if (*word == '0' || !digits || digits > 9 || unit == 5 || word[digits + 1] || count * seconds[unit] > most) {
        return HUSH_TASK;
    }
    *out = count * seconds[unit];
    return HUSH_OK;
}

/* The characters of a JSON integer as a number of at most 2^128. */
static hush_status read_integer(reader *from, bool *negative, wide *out)
{
    static const wide most = {{0, 0, 0, 0, 1}};
    char text[101];
    hush_status status = read_number_text(from, text, sizeof text);
    *out = (wide){{0}};
    *negative = *text == '-';
    if (status != HUSH_OK) {
        return status;
    }
    const char *digits = text + *negative;
    const size_t size = digits_of(digits);
    if (digits[size] || size > 39) { /* 2^128 has 39 */
        return HUSH_TASK;
    }
    for (; *digits; digits++) {
        const wide digit = {{(uint32_t)(*digits - '0')}};
        wide_multiply_add(out, 10, &digit);
    }
    *negative = *negative && !wide_is_zero(out); /* -0 is 0 */
    return wide_compare(out, &most) <= 0 ? HUSH_OK : HUSH_TASK;
}

/* An element of a list; `place` counts from 0. */
typedef hush_status (*element_reader)(reader *from, uint32_t place, void *to);

static hush_status read_list(reader *from, element_reader read, void *to, uint32_t *count)
{
    *count = 0;
    if (!take(from, '[')) {
        return HUSH_TASK;
    }
    if (take(from, ']')) {
        return HUSH_OK;
    }
    do {
        hush_status status = read(from, *count, to);
        if (status != HUSH_OK) {
            return status;
        }
        ++*count;
    } while (take(from, ','));
    return take(from, ']') ? HUSH_OK : HUSH_MALFORMED;
}

/* The fields of a task and of the objects in it, in the order of their names. */
enum {
    FIELD_ID, FIELD_TITLE, FIELD_PURPOSE, FIELD_EPSILON, FIELD_MECHANISM, FIELD_DOMAIN, FIELD_ROUNDS, FIELD_LEVELS,
    FIELD_ENROLLED, FIELD_OPENS, FIELD_CLOSES, FIELD_RELEASE_FROM, FIELD_RELEASE_EVERY, FIELD_RETENTION, FIELD_SIZE,
    FIELD_SAMPLED, FIELD_TABLE, FIELD_COINS, FIELD_ROUND_EVERY, FIELD_REPEAT, FIELD_OFFERS
};
enum {
    FIELD_LOWER, FIELD_UPPER, FIELD_OUTSIDE, FIELD_UNIT, FIELD_KIND, FIELD_LABELS, FIELD_OTHER, FIELD_COORDINATES,
    FIELD_NAME = FIELD_KIND
};
enum { FIELD_POSITIONS, FIELD_TABLE_UNIT, FIELD_WEIGHTS };
enum { FIELD_TRUTH, FIELD_YES };

#define BIT(field) (1u << (field)) /* of a set of fields */

/* Names are one text each, which ends with an empty name: a table of pointers would be as long again. */
static const char TASK_NAMES[] =
    "id\0title\0purpose\0epsilon\0mechanism\0domain\0rounds\0levels\0enrolled\0opens\0closes\0release_from\0"
    "release_every\0retention\0size\0sampled\0table\0coins\0round_every\0repeat\0offers\0";
static const char DOMAIN_NAMES[] = "lower\0upper\0outside\0unit\0kind\0labels\0other\0coordinates\0";
static const char COORDINATE_NAMES[] = "lower\0upper\0outside\0unit\0name\0";
static const char TABLE_NAMES[] = "positions\0unit\0weights\0";
static const char COINS_NAMES[] = "truth\0yes\0";

static const char *after(const char *text)
{
    return text + hush_length(text) + 1;
}

/* The place of a word among names; HUSH_TASK and their number if it is not one of them. */
static hush_status read_choice(reader *from, const char *names, unsigned *place)
{
    char word[24];
    *place = 0;
    hush_status status = read_word(from, word, sizeof word);
    for (; status == HUSH_OK && *names; names = after(names), ++*place) {
        if (hush_is_equal(word, names)) {
            return HUSH_OK;
        }
    }
    return status == HUSH_OK ? HUSH_TASK : status;
}

/* A field of an object, its name and colon taken. */
typedef hush_status (*member_reader)(reader *from, unsigned field, void *to);

/* Every field is known, and there at most once: `seen` has their bits. */
static hush_status read_object(reader *from, const char *names, member_reader read, void *to, unsigned *seen)
{
    unsigned field = 0;
    *seen = 0;
    if (!take(from, '{')) {
        return HUSH_TASK;
    }
    do {
        hush_status status = read_choice(from, names, &field);
        if (status == HUSH_OK && *seen & BIT(field)) {
            status = HUSH_TASK;
        }
        if (status == HUSH_OK && !take(from, ':')) {
            status = HUSH_MALFORMED;
        }
        if (status == HUSH_OK) {
            *seen |= BIT(field);
            status = read(from, field, to);
        }
        if (status != HUSH_OK) {
            return status;
        }
    } while (take(from, ','));
    return take(from, '}') ? HUSH_OK : HUSH_MALFORMED;
}

/* The same, and nothing else. */
static hush_status read_document(reader *from, const char *names, member_reader read, void *to, unsigned *seen)
{
    skip_space(from);
    if (from->at == from->end || *from->at != '{') {
        return HUSH_MALFORMED;
    }
    hush_status status = read_object(from, names, read, to, seen);
    skip_space(from);
    return status != HUSH_OK || from->at == from->end ? status : HUSH_MALFORMED;
}

typedef struct {
    const char *at;
    size_t size;
} span;

typedef enum { KIND_NUMBER, KIND_BIT, KIND_CATEGORY, KIND_VECTOR } kind;

typedef struct {
    hush_task *task;
    const char *json;
    kind kind;
    unsigned seen;
    uint32_t offers, levels, sizes, positions, rows;
    uint32_t largest_size;
    wide total; /* of a row of the table */
} draft;

/* Where the next thing is in the JSON. */
APART static uint32_t place_of(reader *from, const draft *made)
{
    skip_space(from);
    return (uint32_t)(from->at - made->json);
}

static reader read_again(const hush_task *task, uint32_t place)
{
    return (reader){task->json + place, task->json + task->json_bytes};
}

/* Reads a list of the task again. */
static hush_status read_list_again(const hush_task *task, uint32_t place, element_reader read, void *to)
{
    uint32_t count = 0;
    reader from = read_again(task, place);
    return read_list(&from, read, to, &count);
}

/* ---- what a domain has */

/* A text that is not empty and not only spaces: a label, or the name of a coordinate. */
static hush_status read_label(reader *from, span *out)
{
    hush_status status = read_line(from, 100, &out->at, &out->size);
    if (status != HUSH_OK) {
        return status;
    }
    for (size_t i = 0; i < out->size; i++) {
        if (out->at[i] != ' ') {
            return HUSH_OK;
        }
    }
    return HUSH_TASK;
}

static bool is_same(const span *a, const span *b)
{
    return a->size == b->size && hush_is_same(a->at, b->at, a->size); /* their escapes leave no choice */
}

typedef struct {
    hush_number lower, upper;
    span name;
} coordinate;

/* Bounds, and what number and coordinate have besides. */
static hush_status read_range(reader *from, unsigned field, hush_number *lower, hush_number *upper)
{
    unsigned place = 0;
    span unit;
    switch (field) {
    case FIELD_LOWER:
        return read_bound(from, lower);
    case FIELD_UPPER:
        return read_bound(from, upper);
    case FIELD_UNIT:
        return read_line(from, 40, &unit.at, &unit.size);
    default: /* outside; "refuse" is no more: silence would tell the value */
        return read_choice(from, "clamp\0", &place);
    }
}

static hush_status read_coordinate_field(reader *from, unsigned field, void *to)
{
    coordinate *made = to;
    return field == FIELD_NAME ? read_label(from, &made->name) : read_range(from, field, &made->lower, &made->upper);
}

static const unsigned RANGE = BIT(FIELD_LOWER) | BIT(FIELD_UPPER) | BIT(FIELD_OUTSIDE);

static hush_status read_coordinate(reader *from, coordinate *out)
{
    unsigned seen = 0;
    hush_status status = read_object(from, COORDINATE_NAMES, read_coordinate_field, out, &seen);
    return status != HUSH_OK || (seen & ~BIT(FIELD_UNIT)) == (RANGE | BIT(FIELD_NAME)) ? status : HUSH_TASK;
}

/* Whether bounds are in order, and their difference is a finite binary64. */
APART static bool are_bounds(const hush_number *lower, const hush_number *upper)
{
    const int exponent = least_exponent(lower, upper);
    big range, unit;
    hush_number rounded;
    if (number_compare(lower, upper) >= 0) {
        return false;
    }
    set_difference(&range, upper, lower, exponent);
    big_set(&unit, 1);
    big_shift_left(exponent > 0 ? &range : &unit, (size_t)(exponent > 0 ? exponent : -exponent));
    return nearest(&range, &unit, &rounded);
}

static hush_status read_label_element(reader *from, uint32_t place, void *to)
{
    (void)place;
    return read_label(from, to);
}

static hush_status read_coordinate_element(reader *from, uint32_t place, void *to)
{
    coordinate made;
    (void)place;
    hush_status status = read_coordinate(from, &made);
    if (status == HUSH_OK && !are_bounds(&made.lower, &made.upper)) {
        return HUSH_TASK;
    }
    *(span *)to = made.name;
    return status;
}

enum { COMPARED = 32 }; /* names that are compared with all that follow, in one reading */

typedef struct {
    uint32_t first, count;
    span name[COMPARED];
    bool is_coordinate;
} compared;

static hush_status compare_element(reader *from, uint32_t place, void *to)
{
    compared *block = to;
    coordinate made;
    hush_status status = block->is_coordinate ? read_coordinate(from, &made) : read_label(from, &made.name);
    if (status != HUSH_OK || place < block->first) {
        return status;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        if (is_same(&made.name, block->name + i)) {
            return HUSH_TASK;
        }
    }
    if (block->count < COMPARED) {
        block->name[block->count++] = made.name;
    }
    return HUSH_OK;
}

/* Whether the labels, or the names of the coordinates, are different. */
static hush_status check_different(const hush_task *task, bool is_coordinate)
{
    for (uint32_t first = 0; first < task->parts; first += COMPARED) {
        compared block = {.first = first, .is_coordinate = is_coordinate};
        hush_status status = read_list_again(task, task->at.parts, compare_element, &block);
        if (status != HUSH_OK) {
            return status;
        }
    }
    return HUSH_OK;
}

typedef struct {
    span wanted;
    uint32_t place; /* HUSH_MISSING while it was not found */
} search;

static hush_status find_element(reader *from, uint32_t place, void *to)
{
    search *sought = to;
    span label;
    hush_status status = read_label(from, &label);
    if (status == HUSH_OK && is_same(&label, &sought->wanted)) {
        sought->place = place;
    }
    return status;
}

/* The place of the label for all others, or HUSH_MISSING. */
static uint32_t place_of_other(const hush_task *task)
{
    search sought = {.place = HUSH_MISSING};
    reader other = read_again(task, task->at.other);
    if (!task->at.other || read_label(&other, &sought.wanted) != HUSH_OK ||
        read_list_again(task, task->at.parts, find_element, &sought) != HUSH_OK) {
        return HUSH_MISSING;
    }
    return sought.place;
}

static hush_status read_parts(reader *from, draft *to, element_reader read)
{
    span name;
    to->task->at.parts = place_of(from, to);
    hush_status status = read_list(from, read, &name, &to->task->parts);
    return status == HUSH_OK && to->task->parts > HUSH_MOST_PARTS ? HUSH_TASK : status;
}

static hush_status read_kind(reader *from, kind *out)
{
    unsigned place = 0;
    hush_status status = read_choice(from, "number\0bit\0category\0vector\0", &place);
    *out = (kind)place;
    return status;
}

static hush_status read_domain_field(reader *from, unsigned field, void *to)
{
    draft *made = to;
    span label;
    switch (field) {
    case FIELD_KIND:
        return read_kind(from, &made->kind);
    case FIELD_LABELS:
        return HAS_SUBSET ? read_parts(from, made, read_label_element) : HUSH_MECHANISM;
    case FIELD_COORDINATES:
        return HAS_VECTOR ? read_parts(from, made, read_coordinate_element) : HUSH_MECHANISM;
    case FIELD_OTHER:
        made->task->at.other = place_of(from, made);
        return HAS_SUBSET ? read_label(from, &label) : HUSH_MECHANISM;
    default:
        return read_range(from, field, &made->task->lower, &made->task->upper);
    }
}

static hush_status read_domain(reader *from, draft *to)
{
    static const uint8_t needed[] = {RANGE | BIT(FIELD_KIND), BIT(FIELD_KIND), BIT(FIELD_KIND) | BIT(FIELD_LABELS),
                                     BIT(FIELD_KIND) | BIT(FIELD_COORDINATES)};
    static const uint8_t optional[] = {BIT(FIELD_UNIT), 0, BIT(FIELD_OTHER), 0};
    unsigned seen = 0;
    hush_status status = read_object(from, DOMAIN_NAMES, read_domain_field, to, &seen);
    if (status != HUSH_OK) {
        return status;
    }
    return (seen & ~(unsigned)optional[to->kind]) == needed[to->kind] ? HUSH_OK : HUSH_TASK;
}

APART static hush_status check_domain(const draft *made)
{
    const hush_task *task = made->task;
    switch (made->kind) {
    case KIND_NUMBER:
        return are_bounds(&task->lower, &task->upper) ? HUSH_OK : HUSH_TASK;
    case KIND_CATEGORY:
        if (!HAS_SUBSET || task->parts < 2 || (task->at.other && place_of_other(task) == HUSH_MISSING)) {
            return HUSH_TASK;
        }
        return check_different(task, false);
    case KIND_VECTOR:
        return !HAS_VECTOR || task->parts < 1 ? HUSH_TASK : check_different(task, true);
    default:
        return HUSH_OK;
    }
}

/* ---- tables: weights, positions and a unit in integers, checked and drawn from where they are in the JSON */

typedef struct {
    draft *made;
    wide total;
} row_sum;

static hush_status read_weight(reader *from, wide *out)
{
    bool negative = false;
    hush_status status = read_integer(from, &negative, out);
    return status == HUSH_OK && negative ? HUSH_TASK : status;
}

static hush_status read_weight_element(reader *from, uint32_t place, void *to)
{
    row_sum *sum = to;
    wide weight;
    hush_status status = read_weight(from, &weight);
    if (status == HUSH_OK && (sum->made->rows + 1) * (place + 1) > HUSH_MOST_CELLS) { /* `place` is below 2^16 */
        return HUSH_TASK;
    }
    wide_multiply_add(&sum->total, 1, &weight);
    return status;
}

/* A row: as long as the first, and of the same sum, which is not zero. */
static hush_status read_row_element(reader *from, uint32_t place, void *to)
{
    draft *made = to;
    row_sum sum = {.made = made};
    uint32_t count = 0;
    made->rows = place;
    hush_status status = read_list(from, read_weight_element, &sum, &count);
    if (status != HUSH_OK) {
        return status;
    }
    if (place == 0) {
        made->task->outputs = count;
        made->total = sum.total;
    }
    return count == made->task->outputs && wide_compare(&sum.total, &made->total) == 0 && !wide_is_zero(&sum.total)
               ? HUSH_OK
               : HUSH_TASK;
}

static hush_status read_position_element(reader *from, uint32_t place, void *to)
{
    bool negative = false;
    wide position;
    (void)place;
    (void)to;
    return read_integer(from, &negative, &position);
}

static hush_status read_table_field(reader *from, unsigned field, void *to)
{
    draft *made = to;
    wide unit;
    switch (field) {
    case FIELD_POSITIONS:
        made->task->at.positions = place_of(from, made);
        return read_list(from, read_position_element, NULL, &made->positions);
    case FIELD_TABLE_UNIT: {
        made->task->at.unit = place_of(from, made);
        hush_status status = read_weight(from, &unit);
        return status == HUSH_OK && wide_is_zero(&unit) ? HUSH_TASK : status;
    }
    default:
        made->task->at.weights = place_of(from, made);
        return read_list(from, read_row_element, made, &made->rows);
    }
}

static hush_status read_table(reader *from, draft *to)
{
    unsigned seen = 0;
    hush_status status = read_object(from, TABLE_NAMES, read_table_field, to, &seen);
    if (status != HUSH_OK) {
        return status;
    }
    to->task->levels = to->rows - 1;
    return seen == (BIT(FIELD_POSITIONS) | BIT(FIELD_TABLE_UNIT) | BIT(FIELD_WEIGHTS)) && to->rows >= 2 &&
                   to->task->outputs >= 2 && to->positions == to->task->outputs
               ? HUSH_OK
               : HUSH_TASK;
}

typedef struct {
    reader position;
    uint32_t outputs;
    big above, below; /* the sum of weight * position, of the positive and of the negative positions */
} moment_sum;

static hush_status add_moment(reader *from, uint32_t place, void *to)
{
    moment_sum *sum = to;
    bool negative = false;
    wide weight, position;
    hush_status status = read_weight(from, &weight);
    if (status == HUSH_OK) {
        status = read_integer(&sum->position, &negative, &position);
    }
    if (status != HUSH_OK || (place + 1 < sum->outputs && !take(&sum->position, ','))) {
        return status == HUSH_OK ? HUSH_TASK : status;
    }
    big both, other;
    big_set_wide(&both, &weight);
    big_set_wide(&other, &position);
    big_multiply(&both, &other);
    big_add(negative ? &sum->below : &sum->above, &both);
    return HUSH_OK;
}

/* Whether the mean position of row j of L is j/L of the unit: positive * L = total * unit * j + negative * L. */
APART static hush_status check_moment(reader *from, uint32_t place, void *to)
{
    const draft *made = to;
    const hush_task *task = made->task;
    reader unit_at = read_again(task, task->at.unit);
    moment_sum sum = {.position = read_again(task, task->at.positions), .outputs = task->outputs};
    wide unit;
    uint32_t count = 0;
    if (!take(&sum.position, '[') || read_weight(&unit_at, &unit) != HUSH_OK) {
        return HUSH_TASK;
    }
    hush_status status = read_list(from, add_moment, &sum, &count);
    big wanted, one;
    big_set_wide(&wanted, &made->total);
    big_set_wide(&one, &unit);
    big_multiply(&wanted, &one);
    big_multiply_add(&wanted, place, 0);
    big_multiply_add(&sum.below, task->levels, 0);
    big_add(&wanted, &sum.below);
    big_multiply_add(&sum.above, task->levels, 0);
    if (status != HUSH_OK) {
        return status;
    }
    return !sum.above.broken && !wanted.broken && big_compare(&sum.above, &wanted) == 0 ? HUSH_OK : HUSH_TASK;
}

enum { COLUMNS = 16 }; /* of a table that are compared in one reading */

typedef struct {
    uint32_t first, place;
    bool is_first_row;
    wide least[COLUMNS], most[COLUMNS];
} columns;

static hush_status compare_weight(reader *from, uint32_t place, void *to)
{
    columns *found = to;
    wide weight;
    hush_status status = read_weight(from, &weight);
    if (status != HUSH_OK || place < found->first || place - found->first >= COLUMNS) {
        return status;
    }
    wide *least = found->least + (place - found->first), *most = found->most + (place - found->first);
    if (found->is_first_row || wide_compare(&weight, least) < 0) {
        *least = weight;
    }
    if (found->is_first_row || wide_compare(&weight, most) > 0) {
        *most = weight;
    }
    return HUSH_OK;
}

static hush_status compare_row(reader *from, uint32_t place, void *to)
{
    uint32_t count = 0;
    ((columns *)to)->is_first_row = place == 0;
    return read_list(from, compare_weight, to, &count);
}

/* Whether the larger is at most e^epsilon times the other, which `low` over 2^512 is not above. */
APART static bool is_ratio_within(const wide *larger, const wide *smaller, const big *low)
{
    big left, right;
    big_set_wide(&left, larger);
    big_shift_left(&left, PRECISION);
    big_set_wide(&right, smaller);
    big_multiply(&right, low);
    return !left.broken && !right.broken && big_compare(&left, &right) <= 0;
}

/* Whether in every column the weights differ by a factor of at most e^epsilon. */
APART static hush_status check_privacy(const hush_task *task, const big *low)
{
    for (uint32_t first = 0; first < task->outputs; first += COLUMNS) {
        columns found = {.first = first};
        hush_status status = read_list_again(task, task->at.weights, compare_row, &found);
        if (status != HUSH_OK) {
            return status;
        }
        for (uint32_t i = 0; i < COLUMNS && first + i < task->outputs; i++) {
            if (!is_ratio_within(found.most + i, found.least + i, low)) {
                return HUSH_TASK;
            }
        }
    }
    return HUSH_OK;
}

APART static hush_status check_table(draft *made, const fraction *epsilon)
{
    const hush_task *task = made->task;
    big low;
    hush_status status = read_list_again(task, task->at.weights, check_moment, made);
    if (status == HUSH_OK) {
        status = bound_exp(epsilon, false, &low);
    }
    return status == HUSH_OK ? check_privacy(task, &low) : status;
}

/* ---- two coins: the truth with probability `truth`, else yes with probability `yes` */

/* 0 or 1, perhaps with 1 to 18 decimals. */
static bool read_probability(const char *word, fraction *out)
{
    const size_t decimals = *word && word[1] == '.' ? digits_of(word + 2) : 0;
    return (*word == '0' || *word == '1') && word[decimals ? 2 + decimals : 1] == 0 && read_exact(word, out);
}

static hush_status read_coins_field(reader *from, unsigned field, void *to)
{
    draft *made = to;
    char word[24];
    fraction probability;
    *(field == FIELD_TRUTH ? &made->task->at.truth : &made->task->at.yes) = place_of(from, made);
    hush_status status = read_word(from, word, sizeof word);
    return status != HUSH_OK || read_probability(word, &probability) ? status : HUSH_TASK;
}

static hush_status read_coins(reader *from, draft *to)
{
    unsigned seen = 0;
    hush_status status = read_object(from, COINS_NAMES, read_coins_field, to, &seen);
    return status != HUSH_OK || seen == (BIT(FIELD_TRUTH) | BIT(FIELD_YES)) ? status : HUSH_TASK;
}

typedef struct {
    wide ones[2]; /* the weight of a reported yes, for a no and for a yes */
    wide total;
} coins;

/* A probability over 10^18. */
static bool read_share(const hush_task *task, uint32_t place, big *out)
{
    char word[24];
    fraction share;
    reader from = read_again(task, place);
    if (read_word(&from, word, sizeof word) != HUSH_OK || !read_probability(word, &share)) {
        return false;
    }
    *out = share.numerator;
    big_multiply_by_power_of_ten(out, 18 - share.places);
    return true;
}

/* (1 - truth) * yes over 10^36, and truth over 10^18; false where they are no probabilities. */
APART static bool read_shares(const hush_task *task, big *lie, big *truth)
{
    big one;
    big_set(&one, 1);
    big_multiply_by_power_of_ten(&one, 18);
    if (!read_share(task, task->at.truth, truth) || !read_share(task, task->at.yes, lie) ||
        big_compare(truth, &one) > 0 || big_compare(lie, &one) > 0) {
        return false;
    }
    big_subtract(&one, truth);
    big_multiply(lie, &one);
    return true;
}

/* In lowest terms, as the Python client has them: the bytes of a draw depend on the total. */
APART static hush_status weigh_coins(const hush_task *task, coins *out)
{
    big lie, truth, total, common;
    if (!read_shares(task, &lie, &truth)) {
        return HUSH_TASK;
    }
    big_multiply_by_power_of_ten(&truth, 18);
    big_set(&total, 1);
    big_multiply_by_power_of_ten(&total, 36);
    common = total;
    big_reduce(&common, &lie);
    big_reduce(&common, &truth);
    big_add(&truth, &lie); /* a yes for a yes is the truth, or a lie */
    big *const weights[] = {&lie, &truth, &total};
    wide *const places[] = {&out->ones[0], &out->ones[1], &out->total};
    for (size_t i = 0; i < 3; i++) {
        big quotient;
        big_divide(weights[i], &common, &quotient);
        *places[i] = wide_of(&quotient);
    }
    return HUSH_OK;
}

/* Whether all four ratios of an answer are within e^(millionths / 10^6). */
APART static bool is_loss(const coins *weights, const big *millionths)
{
    fraction epsilon = {.numerator = *millionths, .places = 6, .divisor = 1};
    wide weight[4] = {weights->ones[0], weights->ones[1], weights->total, weights->total}; /* by answer and truth */
    big low;
    bool is_within = bound_exp(&epsilon, false, &low) == HUSH_OK;
    for (size_t i = 0; i < 2; i++) {
        wide_subtract(&weight[2 + i], &weight[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        is_within = is_within && is_ratio_within(&weight[i], &weight[i ^ 1], &low);
    }
    return is_within;
}

/* Whether epsilon is what the coins cost, rounded up to six decimals: neither less nor more. */
APART static hush_status check_coins(const hush_task *task, const fraction *epsilon)
{
    big loss, rest = epsilon->numerator, whole;
    coins weights;
    hush_status status = weigh_coins(task, &weights);
    if (status != HUSH_OK) {
        return status;
    }
    if (wide_compare(&weights.ones[0], &weights.ones[1]) >= 0 || wide_is_zero(&weights.ones[0]) ||
        wide_compare(&weights.ones[1], &weights.total) >= 0) {
        return HUSH_TASK; /* an answer says nothing, or everything */
    }
    big_multiply_by_power_of_ten(&rest, 6);
    big_set(&whole, 1);
    multiply_by_denominator(&whole, epsilon);
    big_divide(&rest, &whole, &loss);
    if (rest.broken || rest.used || !is_loss(&weights, &loss)) {
        return HUSH_TASK;
    }
    big_decrease(&loss);
    return is_loss(&weights, &loss) ? HUSH_TASK : HUSH_OK;
}

/* ---- the fields of a task */

static hush_status read_mechanism(reader *from, hush_mechanism *out)
{
    static const char names[] = "laplace" "\0" "multilevel" "\0" "table" "\0" "randomized_response" "\0"
                                "subset_selection" "\0" "vector" "\0";
    unsigned place = 0;
    hush_status status = read_choice(from, names, &place);
    *out = (hush_mechanism)(HUSH_LAPLACE + place);
    if (status != HUSH_OK) {
        return *out > HUSH_VECTOR ? HUSH_MECHANISM : status; /* a word that is not one of them */
    }
    return is_here(*out) ? HUSH_OK : HUSH_MECHANISM;
}

static hush_status read_count_element(reader *from, uint32_t place, void *to)
{
    uint32_t count = 0, *largest = to;
    (void)place;
    hush_status status = read_count(from, HUSH_MOST_LEVELS, &count);
    *largest = count > *largest ? count : *largest;
    return status;
}

/* One integer, or a list with one for each offer. */
static hush_status read_counts(reader *from, uint32_t *count, uint32_t *largest)
{
    skip_space(from);
    if (from->at < from->end && *from->at == '[') {
        return read_list(from, read_count_element, largest, count);
    }
    *count = 1;
    return read_count_element(from, 0, largest);
}

static hush_status read_offer_element(reader *from, uint32_t place, void *to)
{
    char word[32];
    (void)to;
    return place < HUSH_MOST_OFFERS ? read_epsilon_text(from, word, sizeof word) : HUSH_TASK;
}

static hush_status read_repeat(reader *from, bool *sticky)
{
    unsigned place = 0;
    hush_status status = read_choice(from, "fresh\0sticky\0", &place);
    *sticky = place == 1;
    return status == HUSH_OK && *sticky && !HAS_STICKY ? HUSH_ROUNDS : status;
}

static hush_status read_task_field(reader *from, unsigned field, void *to)
{
    draft *made = to;
    hush_task *task = made->task;
    span line;
    uint64_t count = 0;
    uint32_t largest = 0;
    int64_t length = 0;
    hush_status status = HUSH_OK;
    switch (field) {
    case FIELD_ID:
        status = read_word(from, task->id, sizeof task->id);
        return status != HUSH_OK || is_task_id(task->id) ? status : HUSH_TASK;
    case FIELD_TITLE:
        return read_line(from, 500, &line.at, &line.size);
    case FIELD_PURPOSE:
        return read_line(from, 500, &task->purpose, &task->purpose_bytes);
    case FIELD_EPSILON:
        return read_epsilon_text(from, task->epsilon, sizeof task->epsilon);
    case FIELD_ROUNDS:
        return read_count(from, HUSH_MOST_ROUNDS, &task->rounds);
    case FIELD_REPEAT:
        return read_repeat(from, &task->sticky);
    case FIELD_ROUND_EVERY:
        return read_length(from, &task->round_every, LONGEST_LENGTH);
    case FIELD_ENROLLED:
    case FIELD_RELEASE_FROM:
        status = read_natural(from, &count);
        return status == HUSH_OK && !count ? HUSH_TASK : status;
    case FIELD_OPENS:
        return read_moment(from, &task->opens);
    case FIELD_CLOSES:
        return read_moment(from, &task->closes);
    case FIELD_RELEASE_EVERY:
    case FIELD_RETENTION: /* for the aggregator alone */
        return read_length(from, &length, LONGEST_POLICY);
    case FIELD_LEVELS: /* from here on: how a value becomes a report */
        task->at.levels = place_of(from, made);
        return read_counts(from, &made->levels, &largest);
    case FIELD_SIZE:
        task->at.sizes = place_of(from, made);
        return read_counts(from, &made->sizes, &made->largest_size);
    case FIELD_SAMPLED:
        return read_count(from, (HUSH_MOST_WIDTH - 1) / 2, &task->sampled);
    case FIELD_TABLE:
        return HAS_TABLE ? read_table(from, made) : HUSH_MECHANISM;
    case FIELD_COINS:
        return HAS_COINS ? read_coins(from, made) : HUSH_MECHANISM;
    case FIELD_OFFERS:
        task->at.offers = place_of(from, made);
        return read_list(from, read_offer_element, NULL, &made->offers);
    case FIELD_MECHANISM:
        return read_mechanism(from, &task->mechanism);
    default:
        return read_domain(from, made);
    }
}

/* ---- what must fit together in a task */

static bool has_parameters(const draft *made)
{
    static const struct {
        kind kind;
        unsigned needs, may;
    } rules[] = {
        {KIND_NUMBER, 0, 0},
        {KIND_NUMBER, BIT(FIELD_LEVELS), 0},
        {KIND_NUMBER, BIT(FIELD_TABLE), 0},
        {KIND_BIT, 0, BIT(FIELD_COINS)},
        {KIND_CATEGORY, BIT(FIELD_SIZE), 0},
        {KIND_VECTOR, BIT(FIELD_LEVELS) | BIT(FIELD_SAMPLED), 0},
    };
    const hush_task *task = made->task;
    const size_t rule = (size_t)task->mechanism - HUSH_LAPLACE;
    const uint32_t offers = made->offers ? made->offers : 1;
    unsigned given = BIT(FIELD_LEVELS) | BIT(FIELD_SIZE) | BIT(FIELD_SAMPLED) | BIT(FIELD_TABLE) | BIT(FIELD_COINS);
    given &= made->seen;
    given &= ~(made->levels ? 0u : BIT(FIELD_LEVELS)); /* an empty list is none */
    given &= ~(made->sizes ? 0u : BIT(FIELD_SIZE));
    if (made->kind != rules[rule].kind || (given & ~rules[rule].may) != rules[rule].needs ||
        (made->offers && (given & (BIT(FIELD_TABLE) | BIT(FIELD_COINS))))) {
        return false;
    }
    return (!made->levels || made->levels == offers) && (!made->sizes || made->sizes == offers) &&
           task->sampled <= task->parts && made->largest_size < task->parts;
}

static bool has_times(const hush_task *task)
{
    static const int64_t last = INT64_C(253402300799); /* of the year 9999 */
    if (task->closes <= task->opens) {
        return false;
    }
    if (task->round_every == 0 || task->opens == INT64_MIN) {
        return task->rounds == 1;
    }
    return task->rounds == 1 ||
           (task->round_every <= last && task->round_every * (int64_t)(task->rounds - 1) <= last - task->opens);
}

static bool is_sticky_legal(const draft *made)
{
    const hush_task *task = made->task;
    return !task->sticky || ((task->mechanism == HUSH_MULTILEVEL || task->mechanism == HUSH_RANDOMIZED_RESPONSE) &&
                             !made->offers && task->rounds > task->draws);
}

typedef struct {
    uint32_t wanted, found;
} pick;

static hush_status pick_element(reader *from, uint32_t place, void *to)
{
    pick *one = to;
    uint32_t count = 0;
    hush_status status = read_count(from, HUSH_MOST_LEVELS, &count);
    one->found = place == one->wanted ? count : one->found;
    return status;
}

/* The integer for an offer, or the only one. */
static uint32_t pick_count(const hush_task *task, uint32_t place, uint32_t offer)
{
    reader from = read_again(task, place);
    pick one = {.wanted = offer};
    uint32_t count = 0;
    if (!place) {
        return 0;
    }
    skip_space(&from);
    if (*from.at == '[') {
        (void)read_list(&from, pick_element, &one, &count);
    } else {
        (void)pick_element(&from, offer, &one);
    }
    return one.found;
}

hush_status hush_take_offer(hush_task *task, uint32_t offer)
{
    if (!task || !task->json || offer >= (task->offers ? task->offers : 1)) {
        return HUSH_ARGUMENT;
    }
    if (task->offers) {
        reader from = read_again(task, task->at.offers);
        for (uint32_t place = 0; place <= offer; place++) { /* the bracket, then a comma each */
            if (!take(&from, place ? ',' : '[') ||
                read_epsilon_text(&from, task->epsilon, sizeof task->epsilon) != HUSH_OK) {
                return HUSH_TASK;
            }
        }
    }
    task->offer = offer;
    if (task->mechanism != HUSH_TABLE) {
        task->levels = pick_count(task, task->at.levels, offer);
    }
    task->size = pick_count(task, task->at.sizes, offer);
    return HUSH_OK;
}

/* The epsilon of one report, in `parts` equal parts; false if that of the report is below the least. */
APART static bool epsilon_of(const hush_task *task, uint32_t parts, fraction *out)
{
    if (!read_epsilon(task->epsilon, out)) {
        return false;
    }
    out->divisor = task->draws;
    const bool is_legal = is_epsilon(out);
    out->divisor *= parts;
    return is_legal;
}

/* Whether there are 2 to 8 of them, ascending to `whole`. */
APART static hush_status check_offers(const draft *made, const fraction *whole)
{
    hush_task *task = made->task;
    fraction before = {.divisor = 1}, offer = *whole;
    if (made->offers == 1) {
        return HUSH_TASK;
    }
    for (uint32_t place = 0; place < made->offers; place++, before = offer) {
        if (hush_take_offer(task, place) != HUSH_OK || !epsilon_of(task, 1, &offer)) {
            return HUSH_EPSILON;
        }
        offer.divisor = 1;
        if (at_most(&offer, &before)) {
            return HUSH_TASK;
        }
    }
    return at_most(whole, &offer) && at_most(&offer, whole) ? HUSH_OK : HUSH_TASK;
}

/* Takes the largest offer within the limit of the device. */
APART static hush_status choose_offer(hush_task *task, const fraction *limit)
{
    fraction offer;
    for (uint32_t place = task->offers ? task->offers : 1; place-- > 0;) {
        hush_status status = hush_take_offer(task, place);
        if (status != HUSH_OK || (read_exact(task->epsilon, &offer) && at_most(&offer, limit))) {
            return status;
        }
    }
    return HUSH_EPSILON;
}

static bool is_too_large(const hush_task *task)
{
    return hush_width(task) > HUSH_WIDTH || (task->sticky && task->levels > HUSH_MEMORY_LEVELS) ||
           (task->mechanism == HUSH_VECTOR && task->parts > HUSH_COORDINATES);
}

/* What depends on epsilon: its size, the offers, and whether tables and coins cost no more. */
APART static hush_status check_epsilon(draft *made)
{
    hush_task *task = made->task;
    fraction epsilon;
    if (!epsilon_of(task, 1, &epsilon)) {
        return HUSH_EPSILON;
    }
    if (HAS_TABLE && task->at.weights) {
        return check_table(made, &epsilon);
    }
    if (HAS_COINS && task->at.truth) {
        return check_coins(task, &epsilon);
    }
    epsilon.divisor = 1;
    return made->offers ? check_offers(made, &epsilon) : HUSH_OK;
}

static hush_status check_task(draft *made, const fraction *limit)
{
    const unsigned needed =
        BIT(FIELD_ID) | BIT(FIELD_EPSILON) | BIT(FIELD_MECHANISM) | BIT(FIELD_DOMAIN) | BIT(FIELD_ROUNDS);
    hush_task *task = made->task;
    if ((made->seen & needed) != needed || !has_parameters(made) || !has_times(task)) {
        return HUSH_TASK;
    }
    task->offers = made->offers;
    task->draws = !task->sticky ? task->rounds : task->at.levels ? 1 + pick_count(task, task->at.levels, 0) : 2;
    if (!is_sticky_legal(made)) {
        return HUSH_TASK;
    }
    hush_status status = check_epsilon(made);
    if (status == HUSH_OK) {
        status = check_domain(made);
    }
    if (status == HUSH_OK) {
        status = choose_offer(task, limit);
    }
    return status == HUSH_OK && is_too_large(task) ? HUSH_TOO_LARGE : status;
}

hush_status hush_read_task(const uint8_t *payload, size_t size, const char *max_epsilon, hush_task *task)
{
    fraction limit;
    if (!payload || !task || !max_epsilon || !read_exact(max_epsilon, &limit)) {
        return HUSH_ARGUMENT;
    }
    *task = (hush_task){.opens = INT64_MIN, .closes = INT64_MAX, .purpose = "", .parts = 1};
    if (size > HUSH_TASK_BYTES) {
        return HUSH_TASK;
    }
    task->json = (const char *)payload;
    task->json_bytes = size;
    reader from = {task->json, task->json + size};
    draft made = {.task = task, .json = task->json};
    hush_status status = HUSH_MALFORMED;
    if (is_text(payload, payload + size)) {
        status = read_document(&from, TASK_NAMES, read_task_field, &made, &made.seen);
    }
    if (status == HUSH_OK) {
        status = check_task(&made, &limit);
    }
    if (status == HUSH_OK) {
        hush_digest(payload, size, task->digest);
    } else {
        *task = (hush_task){0}; /* so that nobody answers half a task: it is closed, and has no mechanism */
    }
    return status;
}

enum { SUM_LIMBS = 24, ROUNDED_BITS = 256 };

static bool load_sum(big *out, const uint32_t *limbs)
{
    big_set(out, 0);
    memcpy(out->limb, limbs, SUM_LIMBS * sizeof *limbs);
    out->used = SUM_LIMBS;
    big_trim(out);
    return out->used != 0;
}

void hush_sum_clear(hush_sum *sum)
{
    memset(sum, 0, sizeof *sum);
    sum->denominator[0] = 1;
}

/* Makes room: the sum over 2^256, rounded up. */
APART static void round_up(big *numerator, big *denominator)
{
    big quotient;
    big_shift_left(numerator, ROUNDED_BITS);
    big_divide(numerator, denominator, &quotient);
    big_add_small(&quotient, numerator->used != 0);
    *numerator = quotient;
    big_set(denominator, 1);
    big_shift_left(denominator, ROUNDED_BITS);
}

hush_status hush_sum_add(hush_sum *sum, const char *epsilon, uint32_t divisor, uint32_t times)
{
    fraction cost;
    big numerator, denominator;
    if (!sum || !epsilon || !divisor || !read_exact(epsilon, &cost) || !load_sum(&denominator, sum->denominator)) {
        return HUSH_ARGUMENT;
    }
    (void)load_sum(&numerator, sum->numerator);
    cost.divisor = divisor;
    multiply_by_denominator(&numerator, &cost);
    big_multiply_add(&cost.numerator, times, 0);
    big_multiply(&cost.numerator, &denominator);
    big_add(&numerator, &cost.numerator);
    multiply_by_denominator(&denominator, &cost);
    reduce(&numerator, &denominator);
    if (numerator.used > SUM_LIMBS || denominator.used > SUM_LIMBS) {
        round_up(&numerator, &denominator);
    }
    if (numerator.broken || denominator.broken || numerator.used > SUM_LIMBS) {
        return HUSH_ARGUMENT;
    }
    memcpy(sum->numerator, numerator.limb, sizeof sum->numerator);
    memcpy(sum->denominator, denominator.limb, sizeof sum->denominator);
    return HUSH_OK;
}

bool hush_sum_is_within(const hush_sum *sum, const char *limit)
{
    fraction most;
    big numerator, denominator;
    if (!sum || !limit || !read_exact(limit, &most) || !load_sum(&denominator, sum->denominator)) {
        return false;
    }
    (void)load_sum(&numerator, sum->numerator);
    multiply_by_denominator(&numerator, &most);
    big_multiply(&denominator, &most.numerator);
    return !numerator.broken && !denominator.broken && big_compare(&numerator, &denominator) <= 0;
}

hush_status hush_sum_text(const hush_sum *sum, char *out, size_t capacity)
{
    big numerator, denominator;
    if (!sum || !out || !capacity) {
        return HUSH_ARGUMENT;
    }
    (void)load_sum(&numerator, sum->numerator);
    (void)load_sum(&denominator, sum->denominator);
    writer to = {out, capacity - 1, 0, false};
    put_big(&to, &numerator);
    put_text(&to, "/");
    put_big(&to, &denominator);
    out[to.size] = 0;
    return to.full ? HUSH_SPACE : HUSH_OK;
}

hush_status hush_cost(const hush_task *task, char *out, size_t capacity)
{
    hush_sum cost;
    if (!task) {
        return HUSH_ARGUMENT;
    }
    hush_sum_clear(&cost);
    hush_status status = hush_sum_add(&cost, task->epsilon, task->sticky ? 1 : task->rounds, 1);
    return status == HUSH_OK ? hush_sum_text(&cost, out, capacity) : status;
}

hush_status hush_round(const hush_task *task, int64_t now, uint32_t *round)
{
    if (!task || !round) {
        return HUSH_ARGUMENT;
    }
    *round = 0;
    if (now < task->opens || now >= task->closes) {
        return now < task->opens ? HUSH_NOT_OPEN : HUSH_CLOSED;
    }
    if (task->rounds > 1 && task->round_every > 0) {
        const uint64_t past = hush_divide((uint64_t)now - (uint64_t)task->opens, (uint64_t)task->round_every, NULL);
        *round = past < task->rounds ? (uint32_t)past : task->rounds - 1;
    }
    return HUSH_OK;
}

/* ---- subsets: uniform, exactly, and from the bytes of the Python client */

enum { SET_WORDS = HUSH_MOST_PARTS / 32, FEW = 8 /* elements up to which a subset is one draw */ };

typedef struct {
    uint32_t word[SET_WORDS];
} set;

APART static bool set_has(const set *a, uint32_t element)
{
    return a->word[element / 32] >> element % 32 & 1;
}

APART static void set_flip(set *a, uint32_t element)
{
    a->word[element / 32] ^= UINT32_C(1) << element % 32;
}

/* n * (n - 1) * ... of `size` factors: the number of sequences. */
static void set_sequences(big *out, uint32_t n, uint32_t size)
{
    big_set(out, 1);
    for (uint32_t i = 0; i < size; i++) {
        big_multiply_add(out, n - i, 0);
    }
}

/* A uniform subset of {0, ..., n - 1} from a uniform integer below the number of sequences, which is used up: Floyd's
 * algorithm, whose draws are the digits of the one draw in mixed bases (Bentley and Floyd 1987). */
static void floyd(big *draw, uint32_t n, uint32_t size, set *out)
{
    *out = (set){{0}};
    for (uint32_t last = n - size; last < n; last++) {
        const uint32_t low = draw->limb[0];
        big_divide_small(draw, last + 1, false);
        const uint32_t digit = low - draw->limb[0] * (last + 1); /* the remainder: it has less than 32 bits */
        set_flip(out, set_has(out, digit) ? last : digit);
    }
}

/* A coin for each element, of one probability near size/n, then single elements until there are `size`. */
typedef struct {
    uint32_t n, places, share; /* the probability is share / 2^places */
    uint32_t words;            /* of 16 bits for the single elements, usually enough */
} plan;

static int32_t square_root(int32_t a)
{
    int32_t root = 0;
    for (int32_t bit = 1 << 15; bit; bit >>= 1) {
        root += (uint32_t)(root + bit) * (uint32_t)(root + bit) <= (uint32_t)a ? bit : 0; /* below 2^16 */
    }
    return root;
}

static int32_t floor_divide(int32_t a, int32_t b)
{
    return a / b - (a % b < 0);
}

/* The plan of least expected time, as the Python client chooses it: it changes the bytes that are drawn, not the law.
 * With n up to HUSH_MOST_PARTS and FEW < size <= n / 2 no product reaches 2^31. */
static plan best_plan(uint32_t elements, uint32_t drawn)
{
    const int32_t n = (int32_t)elements, size = (int32_t)drawn;
    plan best = {0};
    int32_t least = INT32_MAX;
    for (int32_t places = 0; places <= 6; places++) {
        const int32_t unit = 1 << places;
        for (int32_t share = places ? 1 : 0; share < unit; share += 2) {
            const int32_t lack = floor_divide(size * unit - n * share, unit);
            const int32_t spread = n * share * (unit - share) * 16 / (25 * unit * unit);
            const int32_t root = square_root(lack * lack + spread);
            const int32_t tried = (root + lack) * n / (2 * (n - size)) + (root - lack) * n / (2 * size) + 1;
            const int32_t words = 3 * tried / 2 + 2;
            const int32_t cost = tried * 220 + words * 40 + places * (n + 180);
            if (cost < least) {
                least = cost;
                best = (plan){elements, (uint32_t)places, (uint32_t)share, (uint32_t)words};
            }
        }
    }
    return best;
}

/* Random bytes, read in pieces. */
typedef struct {
    const randomness *source;
    size_t left; /* not read yet */
    size_t at, size;
    uint8_t bytes[32];
} stream;

static hush_status next_byte(stream *from, uint8_t *out)
{
    if (from->at == from->size) {
        from->size = from->left < sizeof from->bytes ? from->left : sizeof from->bytes;
        from->left -= from->size;
        from->at = 0;
        if (!from->size || from->source->fill(from->source->context, from->bytes, from->size) != 0) {
            return HUSH_RANDOM;
        }
    }
    *out = from->bytes[from->at++];
    return HUSH_OK;
}

/* Flips the coins: the digits of the probability, the last one first. The lowest bit of a byte is the first coin. */
static hush_status flip_coins(stream *from, const plan *by, set *out)
{
    uint32_t flipped = 0;
    uint8_t byte = 0;
    for (uint32_t place = 0; place < by->places; place++) {
        for (uint32_t element = 0; element < by->n; element++, byte >>= 1) {
            if (flipped++ % 8 == 0 && next_byte(from, &byte) != HUSH_OK) {
                return HUSH_RANDOM;
            }
            const bool is_in = set_has(out, element), heads = byte & 1;
            if ((by->share >> place & 1 ? is_in || heads : is_in && heads) != is_in) {
                set_flip(out, element);
            }
        }
    }
    return HUSH_OK;
}

/* Tries single elements, each a word of 16 bits; words that are not needed are read as well. */
static hush_status try_elements(stream *from, const plan *by, set *out, int32_t *lack)
{
    const uint32_t limit = 65536 - 65536 % by->n; /* with the last few words the remainders would not be uniform */
    for (uint32_t i = 0; i < by->words; i++) {
        uint8_t low = 0, high = 0;
        if (next_byte(from, &low) != HUSH_OK || next_byte(from, &high) != HUSH_OK) {
            return HUSH_RANDOM;
        }
        const uint32_t word = (uint32_t)high << 8 | low, element = word % by->n;
        if (*lack && word < limit && set_has(out, element) == (*lack < 0)) {
            set_flip(out, element);
            *lack += *lack < 0 ? 1 : -1;
        }
    }
    return HUSH_OK;
}

static hush_status subset_by_coins(const randomness *source, uint32_t n, uint32_t size, set *out)
{
    const plan by = best_plan(n, size);
    const size_t coin_bytes = (n * by.places + 7) / 8;
    int32_t lack = (int32_t)size;
    *out = (set){{0}};
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        stream from = {.source = source, .left = coin_bytes + 2 * (size_t)by.words};
        set coins_shown = *out;
        hush_status status = flip_coins(&from, &by, tries ? &coins_shown : out); /* the coins count once */
        for (uint32_t element = 0; element < n && !tries; element++) {
            lack -= set_has(out, element);
        }
        if (status == HUSH_OK) {
            status = try_elements(&from, &by, out, &lack);
        }
        if (status != HUSH_OK || !lack) {
            return status;
        }
    }
    return HUSH_RANDOM;
}

APART static hush_status draw_subset(const randomness *source, uint32_t n, uint32_t size, set *out)
{
    const bool is_complement = size != 1 && 2 * size > n; /* it is smaller, and as uniform */
    const uint32_t drawn = is_complement ? n - size : size;
    hush_status status = HUSH_OK;
    if (drawn > FEW) {
        status = subset_by_coins(source, n, drawn, out);
    } else {
        big count, draw;
        set_sequences(&count, n, drawn);
        status = random_below(source, &count, &draw);
        if (status == HUSH_OK) {
            floyd(&draw, n, drawn, out);
        }
    }
    for (uint32_t element = 0; element < n && is_complement; element++) {
        set_flip(out, element);
    }
    return status;
}

/* ---- the mechanisms; those after the first are made of one uniform integer */

/* ceil(40 * t / s): beyond this an honest report is met with probability 4e-18. */
APART static hush_status window_of(const big *s, const big *t, int64_t *out)
{
    big rest = *t, quotient;
    big_multiply_add(&rest, 40, 0);
    big_divide(&rest, s, &quotient);
    *out = (int64_t)big_low(&quotient) + (rest.used != 0);
    return quotient.broken || big_bits(&quotient) > 60 ? HUSH_ARGUMENT : HUSH_OK; /* cannot happen from 0.000001 on */
}

/* s = epsilon, over the steps of the grid: the scale is t/s, in lowest terms. */
APART static hush_status set_scale(const hush_task *task, big *s, big *t)
{
    fraction epsilon;
    if (!epsilon_of(task, 1, &epsilon)) {
        return HUSH_EPSILON;
    }
    *s = epsilon.numerator;
    big_set(t, HUSH_STEPS);
    multiply_by_denominator(t, &epsilon);
    reduce(t, s);
    return HUSH_OK;
}

APART static hush_status laplace(const randomness *source, const hush_task *task, uint32_t index, int64_t *body)
{
    big s, t, noise;
    bool negative = false;
    int64_t window = 0;
    hush_status status = set_scale(task, &s, &t);
    if (status == HUSH_OK) {
        status = window_of(&s, &t, &window);
    }
    if (status == HUSH_OK) {
        status = discrete_laplace(source, &s, &t, &negative, &noise);
    }
    if (status != HUSH_OK) {
        return status;
    }
    const int64_t size = big_bits(&noise) > 61 ? INT64_C(1) << 61 : (int64_t)big_low(&noise);
    const int64_t k = (int64_t)index + (negative ? -size : size);
    *body = k < -window ? -window : k > HUSH_STEPS + window ? HUSH_STEPS + window : k;
    return HUSH_OK;
}

static const wide TRUTH = {{0, 0, 0, 0, 1}}; /* the weight of the truth, 2^128 */

/* The weight of a lie. Of a vector it is that of one of its levels. */
APART static hush_status weigh_lie(const hush_task *task, wide *out)
{
    fraction epsilon;
    big weight;
    if (!epsilon_of(task, task->mechanism == HUSH_VECTOR ? task->sampled : 1, &epsilon)) {
        return HUSH_EPSILON;
    }
    hush_status status = weight_of_lie(&epsilon, &weight);
    *out = wide_of(&weight);
    return status;
}

/* The weights of `multilevel`: of a lie, and of all levels together. */
typedef struct {
    wide lie, total;
    uint32_t levels;
} level_weights;

static hush_status weigh_levels(const hush_task *task, level_weights *out)
{
    hush_status status = weigh_lie(task, &out->lie);
    out->levels = task->levels;
    out->total = out->lie;
    wide_multiply_add(&out->total, task->levels, &TRUTH);
    return status;
}

/* How many draws make one report about an index in [0, steps]. */
static void set_draws(big *out, const level_weights *weights, uint32_t steps)
{
    big_set_wide(out, &weights->total);
    big_multiply_add(out, steps, 0);
}

/* The level that one of those draws reports; the draw is used up. */
APART static uint32_t level_of(const level_weights *weights, uint32_t steps, uint32_t index, big *draw)
{
    const uint32_t position = index * weights->levels; /* both are at most 2^20 and 2^10 */
    big by, quotient;
    big_set_wide(&by, &weights->total);
    big_divide(draw, &by, &quotient); /* below steps, and the rest below total: independent */
    const uint32_t level = position / steps + (big_low(&quotient) < position % steps);
    if (big_bits(draw) <= TRUTH_BITS) {
        return level;
    }
    big_set_wide(&by, &TRUTH);
    big_subtract(draw, &by);
    big_set_wide(&by, &weights->lie);
    big_divide(draw, &by, &quotient);
    const uint32_t other = (uint32_t)big_low(&quotient);
    return other + (other >= level);
}

APART static hush_status multilevel(const randomness *source, const level_weights *weights, uint32_t steps,
                                    uint32_t index, int64_t *body)
{
    big count, draw;
    set_draws(&count, weights, steps);
    hush_status status = random_below(source, &count, &draw);
    *body = status == HUSH_OK ? level_of(weights, steps, index, &draw) : 0;
    return status;
}

/* One coin by epsilon, or two. */
APART static hush_status randomized_response(const randomness *source, const hush_task *task, uint32_t index,
                                             int64_t *body)
{
    coins weights = {.ones = {TRUTH, TRUTH}, .total = TRUTH};
    const bool has_coins = HAS_COINS && task->at.truth;
    hush_status status = has_coins ? weigh_coins(task, &weights) : weigh_lie(task, &weights.ones[0]);
    if (!has_coins) {
        wide_multiply_add(&weights.total, 1, &weights.ones[0]);
    }
    if (status != HUSH_OK) {
        return status;
    }
    big total, draw;
    big_set_wide(&total, &weights.total);
    status = random_below(source, &total, &draw);
    const wide drawn = wide_of(&draw);
    *body = status == HUSH_OK && wide_compare(&drawn, &weights.ones[index]) < 0;
    return status;
}

/* Whether a set has the truth, or, of sets of one, which other category it has, not counting the truth. */
APART static hush_status draw_truth(const randomness *source, const hush_task *task, bool *has_truth, uint32_t *other)
{
    big total, draw, with_truth;
    wide lie;
    hush_status status = weigh_lie(task, &lie);
    if (status != HUSH_OK) {
        return status;
    }
    big_set_wide(&with_truth, &TRUTH);
    big_multiply_add(&with_truth, task->size, 0);
    big_set_wide(&total, &lie);
    big_multiply_add(&total, task->parts - task->size, 0);
    big_add(&total, &with_truth);
    status = random_below(source, &total, &draw);
    *has_truth = status == HUSH_OK && big_compare(&draw, &with_truth) < 0;
    if (status == HUSH_OK && !*has_truth) {
        big_subtract(&draw, &with_truth);
        big_set_wide(&with_truth, &lie);
        big_divide(&draw, &with_truth, &total);
        *other = (uint32_t)big_low(&total);
    }
    return status;
}

APART static hush_status subset_selection(const randomness *source, const hush_task *task, uint32_t index,
                                          int64_t *body)
{
    bool has_truth = false;
    uint32_t other = 0;
    set rest = {{0}};
    hush_status status = draw_truth(source, task, &has_truth, &other);
    if (status == HUSH_OK && !has_truth && task->size == 1) {
        set_flip(&rest, other);
    } else if (status == HUSH_OK) {
        status = draw_subset(source, task->parts - 1, task->size - has_truth, &rest);
    }
    for (uint32_t word = 0; word < (task->parts + 31) / 32; word++) {
        body[word] = 0;
    }
    for (uint32_t category = 0; category < task->parts; category++) {
        const bool is_in = category == index ? has_truth : set_has(&rest, category - (category > index));
        body[category / 32] |= (int64_t)is_in << category % 32;
    }
    return status;
}

/* The coordinates that are drawn, and up to FEW of them a uniform integer from which their levels are made. */
APART static hush_status draw_coordinates(const randomness *source, const hush_task *task, const big *each, set *out,
                                          big *levels)
{
    big every, draw;
    if (task->sampled > FEW) {
        return draw_subset(source, task->parts, task->sampled, out);
    }
    set_sequences(&every, task->parts, task->sampled);
    for (uint32_t i = 0; i < task->sampled; i++) {
        big_multiply(&every, each);
    }
    hush_status status = random_below(source, &every, &draw);
    if (status != HUSH_OK) {
        return status;
    }
    set_sequences(&every, task->parts, task->sampled);
    big_divide(&draw, &every, levels);
    floyd(&draw, task->parts, task->sampled, out);
    return HUSH_OK;
}

APART static hush_status vector(const randomness *source, const hush_task *task, const uint32_t *index, int64_t *body)
{
    level_weights weights;
    big each, levels, others;
    set drawn;
    hush_status status = weigh_levels(task, &weights);
    if (status == HUSH_OK) {
        set_draws(&each, &weights, HUSH_STEPS);
        status = draw_coordinates(source, task, &each, &drawn, &levels);
    }
    for (uint32_t place = 0; place < task->parts && status == HUSH_OK; place++) {
        if (!set_has(&drawn, place)) {
            continue;
        }
        *body++ = place;
        if (task->sampled > FEW) {
            status = multilevel(source, &weights, HUSH_STEPS, index[place], body);
        } else {
            big_divide(&levels, &each, &others);
            *body = level_of(&weights, HUSH_STEPS, index[place], &levels);
            levels = others;
        }
        body++;
    }
    return status;
}

/* ---- `table`: an output of a row with its weight, found by adding up; all rows are read, so that the time says little
 * of the level */

typedef struct {
    uint32_t level, output;
    wide draw, sum;
} table_draw;

static hush_status draw_element(reader *from, uint32_t place, void *to)
{
    table_draw *one = to;
    wide weight;
    (void)place;
    hush_status status = read_weight(from, &weight);
    wide_multiply_add(&one->sum, 1, &weight);
    one->output += wide_compare(&one->sum, &one->draw) <= 0;
    return status;
}

static hush_status draw_row(reader *from, uint32_t place, void *to)
{
    table_draw *one = to, row = {.draw = one->draw};
    uint32_t count = 0;
    hush_status status = read_list(from, draw_element, &row, &count);
    if (place == one->level) {
        one->output = row.output;
        one->sum = row.sum;
    }
    return status;
}

/* The level of an index, by chance one of two, and the draw below `total` that chooses an output. */
APART static hush_status draw_table(const randomness *source, const wide *total, uint64_t position, table_draw *out)
{
    big by, draw, rounding;
    big_set_wide(&by, total);
    big_multiply_add(&by, HUSH_STEPS, 0);
    hush_status status = random_below(source, &by, &draw);
    if (status == HUSH_OK) {
        big_set_wide(&by, total);
        big_divide(&draw, &by, &rounding);
        out->level = (uint32_t)(position / HUSH_STEPS) + (big_low(&rounding) < position % HUSH_STEPS);
        out->draw = wide_of(&draw);
    }
    return status;
}

static hush_status table(const randomness *source, const hush_task *task, uint32_t index, int64_t *body)
{
    table_draw one = {0};
    hush_status status = read_list_again(task, task->at.weights, draw_row, &one); /* for the total */
    if (status == HUSH_OK) {
        status = draw_table(source, &one.sum, (uint64_t)index * task->levels, &one);
    }
    if (status == HUSH_OK) {
        status = read_list_again(task, task->at.weights, draw_row, &one);
    }
    *body = one.output;
    return status == HUSH_OK && one.output >= task->outputs ? HUSH_TASK : status;
}

/* ---- from a value to an index */

static bool is_word(const char *word, const char *lower)
{
    for (; *word && *lower; word++, lower++) {
        if ((*word >= 'A' && *word <= 'Z' ? *word + 32 : *word) != *lower) {
            return false;
        }
    }
    return *word == *lower;
}

static uint32_t read_bit(const char *value)
{
    static const char words[] = "no\0false\0" "0\0yes\0true\0" "1\0";
    uint32_t index = HUSH_MISSING, place = 0;
    for (const char *word = words; *word; word = after(word), place++) { /* all of them, whatever the value is */
        index = is_word(value, word) ? place >= 3 : index;
    }
    return index;
}

/* The point of the grid next to a number between the bounds, ties to the even one. */
APART static hush_status point_of(const hush_number *lower, const hush_number *upper, const hush_number *number,
                                  uint32_t *index)
{
    int exponent = least_exponent(lower, upper);
    exponent = exponent < number->exponent ? exponent : number->exponent;
    big range, offset, quotient;
    set_difference(&range, upper, lower, exponent);
    set_difference(&offset, number, lower, exponent);
    big_multiply_add(&offset, HUSH_STEPS, 0);
    big_divide(&offset, &range, &quotient);
    big_shift_left(&offset, 1);
    if (quotient.broken || offset.broken) {
        return HUSH_ARGUMENT;
    }
    const int half = big_compare(&offset, &range);
    *index = (uint32_t)big_low(&quotient);
    *index += half > 0 || (half == 0 && (*index & 1));
    return *index <= HUSH_STEPS ? HUSH_OK : HUSH_ARGUMENT;
}

/* The point of the grid for a text; `moved` is set where it was beyond a bound. */
static hush_status read_point(const hush_number *lower, const hush_number *upper, const char *value, size_t size,
                              uint32_t *index, bool *moved)
{
    hush_number number;
    *index = HUSH_MISSING;
    if (!read_decimal(value, size, &number)) {
        return HUSH_OK;
    }
    const bool below = number_compare(&number, lower) < 0, above = number_compare(&number, upper) > 0;
    *moved = *moved || below || above;
    return point_of(lower, upper, below ? lower : above ? upper : &number, index);
}

typedef struct {
    const char *value; /* NULL where there is none */
    uint32_t place;    /* of the label; HUSH_MISSING while it was not found */
} label_search;

/* Whether a label of the JSON, escapes and all, is this text. */
static bool is_label(const span *label, const char *value)
{
    for (size_t i = 0; i < label->size; i++, value++) {
        i += label->at[i] == '\\';
        if (label->at[i] != *value) {
            return false;
        }
    }
    return !*value;
}

static hush_status compare_label(reader *from, uint32_t place, void *to)
{
    label_search *one = to;
    span label;
    hush_status status = read_label(from, &label);
    if (status == HUSH_OK && one->value && is_label(&label, one->value)) {
        one->place = place;
    }
    return status;
}

static hush_status index_of_label(const hush_task *task, const char *value, uint32_t *index, bool *moved)
{
    label_search one = {value, HUSH_MISSING};
    hush_status status = read_list_again(task, task->at.parts, compare_label, &one);
    const uint32_t other = place_of_other(task);
    *moved = value && one.place == HUSH_MISSING && other != HUSH_MISSING;
    *index = *moved ? other : one.place;
    return status;
}

typedef struct {
    const char *value; /* what is left of the numbers; NULL where there are none */
    uint32_t *index;
    bool moved;
} vector_search;

static hush_status read_number_element(reader *from, uint32_t place, void *to)
{
    static const char space[] = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
    vector_search *one = to;
    coordinate made;
    hush_status status = read_coordinate(from, &made);
    one->index[place] = HUSH_MISSING;
    if (status != HUSH_OK || !one->value) {
        return status;
    }
    const char *start = one->value, *end = start;
    while (*end && *end != ',') {
        end++;
    }
    one->value = end + (*end == ',');
    while (hush_is_one_of(*start, space)) {
        start++;
    }
    while (end > start && hush_is_one_of(end[-1], space)) {
        end--;
    }
    return read_point(&made.lower, &made.upper, start, end > start ? (size_t)(end - start) : 0, one->index + place,
                      &one->moved);
}

static hush_status index_of_vector(const hush_task *task, const char *value, uint32_t *index, bool *moved)
{
    uint32_t numbers = value ? 1 : 0;
    for (const char *at = value; at && *at; at++) {
        numbers += *at == ',';
    }
    vector_search one = {numbers == task->parts ? value : NULL, index, false};
    hush_status status = read_list_again(task, task->at.parts, read_number_element, &one);
    *moved = one.moved;
    return status;
}

/* The numbers of a value: one, but of a vector one for each coordinate. */
APART static uint32_t numbers_of(const hush_task *task)
{
    return is_by(task, HUSH_VECTOR) ? task->parts : 1;
}

static hush_status index_of_number(const hush_task *task, const char *value, uint32_t *index, bool *moved)
{
    *index = HUSH_MISSING;
    if (!is_number(&task->lower) || !is_number(&task->upper) || number_compare(&task->lower, &task->upper) >= 0) {
        return HUSH_TASK;
    }
    return value ? read_point(&task->lower, &task->upper, value, hush_length(value), index, moved) : HUSH_OK;
}

hush_status hush_index(const hush_task *task, const char *value, uint32_t *index, size_t capacity,
                       hush_became *became)
{
    bool moved = false, replaced = false;
    hush_status status = HUSH_OK;
    if (!task || !index || !became) {
        return HUSH_ARGUMENT;
    }
    const uint32_t numbers = numbers_of(task);
    if (capacity < numbers) {
        return HUSH_SPACE;
    }
    *became = HUSH_REPLACED;
    if (is_by(task, HUSH_RANDOMIZED_RESPONSE)) {
        *index = value ? read_bit(value) : HUSH_MISSING;
    } else if (is_by(task, HUSH_SUBSET_SELECTION)) {
        status = index_of_label(task, value, index, &moved);
    } else if (is_by(task, HUSH_VECTOR)) {
        status = index_of_vector(task, value, index, &moved);
    } else {
        status = index_of_number(task, value, index, &moved);
    }
    for (uint32_t part = 0; part < numbers; part++) {
        replaced = replaced || index[part] == HUSH_MISSING;
    }
    *became = replaced ? HUSH_REPLACED : moved ? HUSH_MOVED : HUSH_USED;
    return status;
}

/* ---- an answer */

size_t hush_width(const hush_task *task)
{
    const size_t offer = task->offers > 0;
    switch (task->mechanism) {
    case HUSH_SUBSET_SELECTION:
        return offer + (task->parts + 31) / 32;
    case HUSH_VECTOR:
        return offer + 2 * (size_t)task->sampled;
    default:
        return offer + 1;
    }
}

/* The largest index of a part. */
APART static uint32_t most_index(const hush_task *task)
{
    return task->mechanism == HUSH_RANDOMIZED_RESPONSE  ? 1
           : task->mechanism == HUSH_SUBSET_SELECTION ? task->parts - 1
                                                      : (uint32_t)HUSH_STEPS;
}

static hush_status perturb(const hush_task *task, const randomness *source, const uint32_t *index, int64_t *body)
{
    if (is_by(task, HUSH_LAPLACE)) {
        return laplace(source, task, *index, body);
    }
    if (is_by(task, HUSH_TABLE)) {
        return table(source, task, *index, body);
    }
    if (is_by(task, HUSH_RANDOMIZED_RESPONSE)) {
        return randomized_response(source, task, *index, body);
    }
    if (is_by(task, HUSH_SUBSET_SELECTION)) {
        return subset_selection(source, task, *index, body);
    }
    if (is_by(task, HUSH_VECTOR)) {
        return vector(source, task, index, body);
    }
    if (is_by(task, HUSH_MULTILEVEL)) {
        level_weights weights;
        hush_status status = weigh_levels(task, &weights);
        return status == HUSH_OK ? multilevel(source, &weights, HUSH_STEPS, *index, body) : status;
    }
    return HUSH_MECHANISM;
}

/* Whether the integers of a task are within their limits: what hush_read_task leaves is. */
static bool is_whole(const hush_task *task)
{
    const bool has_levels = task->mechanism == HUSH_MULTILEVEL || task->mechanism == HUSH_VECTOR;
    return task->json && task->mechanism >= HUSH_LAPLACE && task->mechanism <= HUSH_VECTOR && is_here(task->mechanism) &&
           task->draws >= 1 && task->parts >= 1 && task->parts <= HUSH_MOST_PARTS && task->levels <= HUSH_MOST_CELLS &&
           (!has_levels || (task->levels >= 1 && task->levels <= HUSH_MOST_LEVELS)) && hush_width(task) <= HUSH_WIDTH &&
           (task->mechanism != HUSH_SUBSET_SELECTION || (task->size >= 1 && task->size < task->parts)) &&
           (task->mechanism != HUSH_VECTOR ||
            (task->parts <= HUSH_COORDINATES && task->sampled >= 1 && task->sampled <= task->parts));
}

hush_status hush_perturb(const hush_task *task, const uint32_t *index, hush_random source, void *context,
                         int64_t *body, size_t capacity)
{
    const randomness random = {source, context};
    if (!task || !source || !body || !index || !is_whole(task)) {
        return HUSH_ARGUMENT;
    }
    const uint32_t numbers = numbers_of(task), most = most_index(task);
    for (uint32_t part = 0; part < numbers; part++) {
        if (index[part] > most) {
            return HUSH_ARGUMENT;
        }
    }
    if (capacity < hush_width(task)) {
        return HUSH_SPACE;
    }
    if (task->offers) {
        *body++ = task->offer;
    }
    return perturb(task, &random, index, body);
}

/* Draws an index where there is no value, in the order of the parts. */
APART static hush_status fill(const hush_task *task, const randomness *source, uint32_t *index)
{
    big size, draw;
    big_set(&size, (uint64_t)most_index(task) + 1);
    const uint32_t numbers = numbers_of(task);
    for (uint32_t part = 0; part < numbers; part++) {
        hush_status status = index[part] == HUSH_MISSING ? random_below(source, &size, &draw) : HUSH_OK;
        if (status != HUSH_OK) {
            return status;
        }
        index[part] = index[part] == HUSH_MISSING ? (uint32_t)big_low(&draw) : index[part];
    }
    return HUSH_OK;
}

/* The grid of a sticky task: a value lies on 0 to m, a memory has 0 to G. */
static void grid_of(const hush_task *task, uint32_t *steps, uint32_t *levels)
{
    const bool bit = is_by(task, HUSH_RANDOMIZED_RESPONSE);
    *steps = bit ? 1 : HUSH_STEPS;
    *levels = bit ? 1 : task->levels;
}

static hush_status draw_small(const randomness *source, uint32_t n, uint32_t *out)
{
    big below, draw;
    big_set(&below, n);
    hush_status status = random_below(source, &below, &draw);
    *out = status == HUSH_OK ? (uint32_t)big_low(&draw) : 0;
    return status;
}

hush_status hush_draw_memory(const hush_task *task, hush_random source, void *context, hush_memory *memory)
{
    const randomness random = {source, context};
    uint32_t steps = 0, levels = 0;
    level_weights weights;
    if (!task || !source || !memory || !HAS_STICKY || !is_whole(task) || !task->sticky || task->levels > HUSH_MEMORY_LEVELS) {
        return HUSH_ARGUMENT;
    }
    *memory = (hush_memory){0};
    grid_of(task, &steps, &levels);
    const bool has_levels = is_by(task, HUSH_MULTILEVEL);
    hush_status status = has_levels ? weigh_levels(task, &weights) : HUSH_OK;
    for (uint32_t level = 0; level <= levels && status == HUSH_OK; level++) {
        int64_t body = 0;
        if (has_levels) {
            status = multilevel(&random, &weights, levels, level, &body);
        } else if (HAS_RESPONSE) {
            status = randomized_response(&random, task, level, &body);
        }
        memory->reports[level] = (uint16_t)body;
    }
    if (status == HUSH_OK) {
        status = draw_small(&random, steps, &memory->threshold);
    }
    if (status == HUSH_OK) {
        status = draw_small(&random, steps + 1, &memory->substitute);
    }
    memory->levels = levels;
    return status;
}

bool hush_fits(const hush_task *task, const hush_memory *memory)
{
    uint32_t steps = 0, levels = 0;
    if (!HAS_STICKY || !task || !memory || !task->sticky) {
        return false;
    }
    grid_of(task, &steps, &levels);
    if (memory->levels != levels || levels > HUSH_MEMORY_LEVELS || memory->threshold >= steps ||
        memory->substitute > steps) {
        return false;
    }
    for (uint32_t level = 0; level <= levels; level++) {
        if (memory->reports[level] > levels) {
            return false;
        }
    }
    return true;
}

/* The report that the memory has for an index. */
static int64_t remembered(const hush_task *task, const hush_memory *memory, uint32_t index)
{
    uint32_t steps = 0, levels = 0;
    grid_of(task, &steps, &levels);
    const uint32_t position = (index == HUSH_MISSING ? memory->substitute : index) * levels;
    return memory->reports[position / steps + (memory->threshold < position % steps)];
}

hush_status hush_draw(const hush_task *task, const hush_memory *memory, uint32_t round, const char *value,
                      hush_random source, void *context, hush_report *report)
{
    const randomness random = {source, context};
    uint32_t index[HUSH_COORDINATES];
    if (!task || !source || !report || !is_whole(task) || round >= task->rounds || task->sticky != !!memory ||
        (memory && !hush_fits(task, memory))) {
        return HUSH_ARGUMENT;
    }
    memset(report, 0, sizeof *report);
    hush_status status = hush_index(task, value, index, HUSH_COORDINATES, &report->value);
    if (status == HUSH_OK && HAS_STICKY && memory) {
        report->body[0] = remembered(task, memory, *index);
    } else if (status == HUSH_OK) {
        status = fill(task, &random, index);
        if (status == HUSH_OK) {
            status = hush_perturb(task, index, source, context, report->body, HUSH_WIDTH);
        }
    }
    if (status == HUSH_OK && source(context, report->id, sizeof report->id) != 0) {
        status = HUSH_RANDOM;
    }
    hush_copy(report->digest, task->digest, sizeof report->digest);
    report->round = round;
    report->width = hush_width(task);
    if (status != HUSH_OK) {
        memset(report, 0, sizeof *report); /* no half of a report */
    }
    return status;
}

hush_status hush_answer(const hush_task *task, const char *value, int64_t now, hush_random source, void *context,
                        hush_report *report)
{
    uint32_t round = 0;
    if (!report) {
        return HUSH_ARGUMENT;
    }
    memset(report, 0, sizeof *report);
    hush_status status = hush_round(task, now, &round);
    if (status == HUSH_OK && task->sticky) {
        return HUSH_ROUNDS;
    }
    return status == HUSH_OK ? hush_draw(task, NULL, round, value, source, context, report) : status;
}

/* ---- recalls */

enum { CLOCK_SKEW = 300, LONGEST_SPREAD = 86400 };

enum { RECALL_VERSION, RECALL_TASK, RECALL_DIGEST, RECALL_ID, RECALL_OVER };

static const char RECALL_NAMES[] = "v\0task\0digest\0id\0over\0";
static const unsigned RECALL_FIELDS = 0x1f; /* all of them */

static hush_status read_hex(reader *from, uint8_t *out, size_t count)
{
    char text[2 * HUSH_DIGEST_BYTES + 1]; /* the longest that a recall has */
    hush_status status = read_word(from, text, 2 * count + 1);
    if (status != HUSH_OK) {
        return status;
    }
    for (size_t i = 0; i < 2 * count; i++) {
        const char letter = (char)(text[i] | 0x20);
        if (!is_digit(text[i]) && (letter < 'a' || letter > 'f')) {
            return HUSH_TASK;
        }
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (is_digit(text[i]) ? text[i] - '0' : letter - 'a' + 10));
    }
    return HUSH_OK;
}

/* Seconds, from 0 to 2^53 - 1, clamped. */
static hush_status read_over(reader *from, uint32_t *spread)
{
    uint64_t over = 0;
    hush_status status = read_natural(from, &over);
    *spread = over < 1 ? 1 : over > LONGEST_SPREAD ? LONGEST_SPREAD : (uint32_t)over;
    return status;
}

static hush_status read_recall_field(reader *from, unsigned field, void *out)
{
    hush_recall *to = out;
    uint32_t version = 0;
    hush_status status = HUSH_OK;
    switch (field) {
    case RECALL_VERSION:
        return read_count(from, 1, &version);
    case RECALL_TASK:
        status = read_word(from, to->task, sizeof to->task);
        return status == HUSH_OK && !is_task_id(to->task) ? HUSH_TASK : status;
    case RECALL_DIGEST:
        return read_hex(from, to->digest, sizeof to->digest);
    case RECALL_ID:
        return read_hex(from, to->id, sizeof to->id);
    default:
        return read_over(from, &to->spread);
    }
}

hush_status hush_read_recall(const uint8_t *payload, size_t size, hush_recall *recall)
{
    if (!payload || !recall) {
        return HUSH_ARGUMENT;
    }
    memset(recall, 0, sizeof *recall);
    reader from = {(const char *)payload, (const char *)payload + size};
    unsigned seen = 0;
    hush_status status = HUSH_MALFORMED;
    if (size <= HUSH_RECALL_BYTES && is_text(payload, payload + size)) {
        status = read_document(&from, RECALL_NAMES, read_recall_field, recall, &seen);
        status = status == HUSH_OK && seen != RECALL_FIELDS ? HUSH_TASK : status;
    }
    if (status != HUSH_OK) {
        memset(recall, 0, sizeof *recall); /* so that it asks for nothing: no task has an empty name */
    }
    return status;
}

bool hush_is_recalled(const hush_recall *recall, const char *task_id, const uint8_t *frame, size_t size)
{
    return recall && task_id && frame && size >= HUSH_HEADER_BYTES && *recall->task &&
           hush_is_equal(recall->task, task_id) && hush_is_same(frame + 4, recall->digest, HUSH_REPORT_DIGEST_BYTES);
}

hush_status hush_recall_delay(const hush_recall *recall, hush_random source, void *context, uint32_t *milliseconds)
{
    if (!recall || !source || !milliseconds || recall->spread < 1 || recall->spread > LONGEST_SPREAD) {
        return HUSH_ARGUMENT;
    }
    const randomness from = {source, context};
    return draw_small(&from, 1000 * recall->spread + 1, milliseconds);
}

int64_t hush_kept_until(int64_t acknowledged, int64_t closes, int64_t keep, const hush_recall *scheduled)
{
    if (keep <= 0) {
        return acknowledged;
    }
    if (scheduled) {
        return hush_later(closes, CLOCK_SKEW + 2 * (int64_t)scheduled->spread);
    }
    const int64_t by_close = hush_later(closes, CLOCK_SKEW);
    const int64_t by_age = hush_later(acknowledged, keep < HUSH_KEEP_SECONDS ? keep : HUSH_KEEP_SECONDS);
    return by_close < by_age ? by_close : by_age;
}

/* By status, each with its zero: one array, which a program that shows no messages does not link. */
static const char MESSAGES[] =
    "done\0"
    "an argument is missing or outside its range; see hush.h\0"
    "the storage or a buffer is too small\0"
    "the source of randomness failed; nothing was answered\0"
    "the task is not JSON of printable UTF-8; fetch it again from its topic\0"
    "the task has a field that is missing, unknown or illegal; hush task check names it\0"
    "epsilon is not exact, not from 0.000001 to 50, or above the limit of this device\0"
    "the task has not opened yet\0"
    "the task is closed\0"
    "this program lacks the mechanism; see docs/ports.md\0"
    "the task needs a memory of its rounds; see hush_device.h\0"
    "the task is too large for this program; see docs/ports.md\0"
    "the answer would exceed the budget for the task's purpose\0"
    "this round is answered; its report is sent until it is acknowledged\0"
    "another task has this id; publish the changed one under a new id\0"
    "the state cannot be read, written or trusted; nothing was answered\0"
    "there is no such record\0"
    "its answers reveal when the value changes; this device forbids it\0"
    "too many reports wait for the broker; check the connection\0"
    "unknown status";

const char *hush_message(hush_status status)
{
    const char *at = MESSAGES;
    for (unsigned left = status <= HUSH_FULL ? status : HUSH_FULL + 1u; left; left--) {
        at = after(at);
    }
    return at;
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
