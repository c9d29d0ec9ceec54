#!/bin/sh
# Trains what the reports' claims about attention are answered from, and prints the answers; docs/results/attention.md.
#
#   sh docs/results/attention.sh HOME [words for every study, such as seeds=8 train.precision=tf32]
set -e
home=${1:?name a home folder}
shift
for study in arithmetic/sanity speeches/classifier speeches/language-model characters/shakespeare characters/hebrew; do
    seedbed run "$study" "$@" --home "$home" --quiet > /dev/null
    seedbed report "$study" --home "$home"
    echo "== $study"
    seedbed answer "$study" --home "$home"
done
