"""Roman numerals, with a mistake: subtraction is known for 4 and 9 only."""

VALUES = ((1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def roman(number):
    text = ""
    for value, letters in VALUES:
        while number >= value:
            text += letters
            number -= value
    return text
