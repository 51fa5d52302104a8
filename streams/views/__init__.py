"""A team's own projections: folds over the log, each with a checkpoint that lies with its result. ``threadfold.views`` is the face."""
