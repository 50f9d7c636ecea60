assert roman(3) == "III"
assert roman(9) == "IX"
assert roman(40) == "XL", "forty is fifty less ten"
assert roman(2024) == "MMXXIV"
