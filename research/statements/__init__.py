"""Whether a linear head over sentence vectors tells what a message is better than the rules do."""
