#!/bin/sh
# Trains the studies that test the reports' claims about attention, and prints the answers; see docs/results/attention.md.
#
#   sh docs/results/attention.sh HOME [overrides for every study, such as seeds=8 train.precision=tf32]
set -e
home=${1:?name a home folder}
shift
for study in arithmetic/sanity speeches/classifier speeches/language-model characters/shakespeare characters/hebrew; do
    seedbed run "$study" "$@" --home "$home" --quiet > /dev/null
    seedbed report "$study" --home "$home"
    echo "== $study"
    seedbed answer "$study" --home "$home"
done
