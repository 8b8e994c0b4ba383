#!/bin/bash
for f in "${FILES[@]}"; do echo "${f%.txt}" %{x} ${rank}; done
