#!/usr/bin/env python3
"""usage: dates_data.py COUNT [SEED]

Prints COUNT written dates of years that training never sees, each with its ISO date after a tab. The same seed gives
the same dates. What is written is unambiguous by these rules:

  - numbers only: if the first has four digits (or eight), year, month, day; else day, month, year
  - a month's name, or its first three letters (also "sept"), may come before or after the day
  - years of two digits are 1930 to 2029, and come last
  - a weekday, if there is one, is the right one

Years are 1600 to 2399; every seventh is held out of training.
"""
import datetime
import pathlib
import random
import re
import sys

HEADER = pathlib.Path(__file__).with_name("vocabulary.h").read_text()
CHARACTERS = re.search(r'define CHARACTERS "(.*)"', HEADER)[1]
NUMBERS = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+),", HEADER)}
PADDING, BEGINNING, END = NUMBERS["PADDING"], NUMBERS["BEGINNING"], NUMBERS["END"]
FIRST_ID, LONGEST, ISO_LENGTH = NUMBERS["FIRST_ID"], NUMBERS["LONGEST"], NUMBERS["ISO_LENGTH"]
VOCABULARY = FIRST_ID + len(CHARACTERS)
TEST_SEED = 2026

ALL_YEARS, THESE_CENTURIES, TWO_DIGITS = range(1600, 2400), range(1900, 2100), range(1930, 2030)
MONTHS = ("january february march april may june july august september october november december").split()
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
SHORT = {"september": ["sep", "sept"], "tuesday": ["tue", "tues"], "thursday": ["thu", "thur", "thurs"]}

# {year} may have two digits, {full} has four; {nth} is a day with or without its ending, {and} a comma or nothing.
WITH_NAME = ["{nth} {month}{and} {year}", "{nth} of {month}{and} {year}", "the {nth} of {month}{and} {year}",
             "{day}. {month} {year}", "{day}-{month}-{year}", "{day}/{month}/{year}", "{month} {nth}{and} {year}",
             "{month} the {nth}{and} {year}", "{month}-{day}-{year}", "{full}{and} {month} {nth}",
             "{full}-{month}-{day}"]
NUMBERS_ONLY = ["{day}/{number}/{year}", "{day}.{number}.{year}", "{day}-{number}-{year}", "{day} {number} {year}",
                "{day}. {number}. {year}", "{full}-{number}-{day}", "{full}/{number}/{day}", "{full}.{number}.{day}",
                "{full} {number} {day}", "{full}{number2}{day2}"]


def held_out(year):
    return year % 7 == 0


def ids(text):
    """The ids of a text; ValueError for a character that has none."""
    return [FIRST_ID + CHARACTERS.index(c) for c in text.lower()]


def text_of(tokens):
    """What tokens spell, up to the end token."""
    tokens = tokens[:tokens.index(END)] if END in tokens else tokens
    return "".join(CHARACTERS[t - FIRST_ID] if t >= FIRST_ID else "?" for t in tokens)


class Writer:
    """Writes random dates. `held` chooses between the years held out and all others."""

    def __init__(self, seed, held):
        self.random = random.Random(seed)
        self.years = {years: [y for y in years if held_out(y) == held]
                      for years in (ALL_YEARS, THESE_CENTURIES, TWO_DIGITS)}

    def chance(self, probability):
        return self.random.random() < probability

    def name(self, full):
        """A name in full or short, the latter with or without a dot."""
        if self.chance(0.5):
            return full
        return self.random.choice(SHORT.get(full, [full[:3]])) + ("." if self.chance(0.15) else "")

    def date(self, years):
        first = datetime.date(self.random.choice(self.years[years]), 1, 1)
        date = first + datetime.timedelta(days=self.random.randrange(366))
        return date if date.year == first.year else first

    def fields(self, date, two_digits, named):
        zero = "02" if self.chance(0.4) else ""
        day = format(date.day, zero)
        ending = "th" if 11 <= date.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(date.day % 10, "th")
        apostrophe = "'" if named and self.chance(0.15) else ""
        return {"day": day, "nth": f"{date.day}{ending}" if self.chance(0.5) else day,
                "number": format(date.month, zero), "month": self.name(MONTHS[date.month - 1]),
                "number2": f"{date.month:02}", "day2": f"{date.day:02}", "full": date.year,
                "year": f"{apostrophe}{date.year % 100:02}" if two_digits else date.year,
                "and": "," if self.chance(0.4) else ""}

    def spaced(self, text):
        """More blanks here and there, or none after a comma."""
        loose = re.sub(" ", lambda _: " " * self.random.choice([1, 1, 1, 2, 3]), text)
        loose = " " * self.random.choice([0, 0, 1, 2]) + loose + " " * self.random.choice([0, 0, 1, 2])
        if self.chance(0.2):
            loose = re.sub(", +", ",", loose)
        return loose if len(loose) <= LONGEST else text

    def cased(self, text):
        letter = lambda c: c.upper() if self.chance(0.5) else c
        return self.random.choice([str.lower, str.title, str.title, str.upper, lambda t: "".join(map(letter, t))])(text)

    def pair(self):
        """A written date and its ISO date."""
        two_digits = self.chance(0.3)
        named = self.chance(0.6)
        forms = [f for f in (WITH_NAME if named else NUMBERS_ONLY) if not (two_digits and "{full}" in f)]
        date = self.date(TWO_DIGITS if two_digits else self.random.choice([ALL_YEARS, THESE_CENTURIES]))
        text = self.random.choice(forms).format(**self.fields(date, two_digits, named))
        if self.chance(0.3):
            text = self.name(WEEKDAYS[date.weekday()]) + self.random.choice([" ", ", "]) + text
        if self.chance(0.3):
            text = self.spaced(text)
        return self.cased(text), date.isoformat()


def main(count, seed=TEST_SEED):
    writer = Writer(int(seed), held=True)
    for _ in range(int(count)):
        print(*writer.pair(), sep="\t")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
