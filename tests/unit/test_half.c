/* Numbers of 16 bits (base/half.h): every one comes back, and what lies between two becomes the nearer one. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tfm/abi/half.h"

typedef struct Format {
  const char *name;
  float (*widen)(uint16_t bits);
  uint16_t (*round)(float value);
  uint16_t infinity; /* the numbers below it are finite */
} Format;

static const Format formats[] = {{"bf16", bf16_to_f32, f32_to_bf16, 0x7f80}, {"f16", f16_to_f32, f32_to_f16, 0x7c00}};

static float towards(float from, float to) { return nextafterf(from, to); }

Test(half, every_number_comes_back) {
  for (int i = 0; i < 2; i++)
    for (unsigned bits = 0; bits < 65536; bits++) {
      const float value = formats[i].widen((uint16_t)bits);
      const unsigned again = formats[i].round(value);
      if (isnan(value)) cr_assert(isnan(formats[i].widen((uint16_t)again)), "%s %04x", formats[i].name, bits);
      else cr_assert_eq(again, bits, "%s %04x", formats[i].name, bits);
    }
}

/* The middle between two neighbours is exact in f32; beside it there are f32 on both sides. */
Test(half, between_two_numbers_the_nearer_one_or_the_even_one) {
  for (int i = 0; i < 2; i++)
    for (unsigned bits = 0; bits + 1 < formats[i].infinity; bits++) {
      const float low = formats[i].widen((uint16_t)bits), high = formats[i].widen((uint16_t)(bits + 1));
      const float middle = (float)(((double)low + (double)high) / 2);
      for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
        const float turn = sign ? -1 : 1;
        cr_assert_eq(formats[i].round(turn * middle), sign | (bits + bits % 2), "%s %04x", formats[i].name, bits);
        cr_assert_eq(formats[i].round(turn * towards(middle, low)), sign | bits, "%s %04x", formats[i].name, bits);
        cr_assert_eq(formats[i].round(turn * towards(middle, high)), sign | (bits + 1), "%s %04x", formats[i].name, bits);
      }
    }
}

Test(half, what_is_too_large_becomes_infinite) {
  cr_assert_eq(f32_to_f16(65519.0f), 0x7bff);
  cr_assert_eq(f32_to_f16(65520.0f), 0x7c00);
  cr_assert_eq(f32_to_f16(-1e30f), 0xfc00);
  cr_assert_eq(f32_to_f16(INFINITY), 0x7c00);
  cr_assert_eq(f32_to_bf16(3.4e38f), 0x7f80);
  cr_assert_eq(f32_to_bf16(-INFINITY), 0xff80);
}

Test(half, a_nan_whose_bits_are_cut_off_stays_one) {
  const uint32_t bits = 0x7f800001;
  float nan;
  memcpy(&nan, &bits, sizeof nan);
  cr_assert(isnan(bf16_to_f32(f32_to_bf16(nan))));
  cr_assert(isnan(f16_to_f32(f32_to_f16(nan))));
}
