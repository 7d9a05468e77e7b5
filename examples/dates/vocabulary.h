/* The characters of written dates, shared by dates.c and dates_data.py (which reads this file).
 *
 * The id of a character is FIRST_ID + its position in CHARACTERS; capitals have the ids of small letters. */
#ifndef DATES_VOCABULARY_H
#define DATES_VOCABULARY_H

#define CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789 ,./-'"

enum {
  PADDING = 0,
  BEGINNING = 1,
  END = 2,
  FIRST_ID = 3,
  VOCABULARY = FIRST_ID + sizeof CHARACTERS - 1,
  LONGEST = 48,    /* characters of a written date */
  ISO_LENGTH = 10, /* of YYYY-MM-DD */
};

#endif
