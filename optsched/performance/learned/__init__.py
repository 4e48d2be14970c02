"""Models that are learnt from measurements: boosted trees, and the interference of jobs that share a GPU.

scikit-learn (the extra ``learn``) fits the trees; nothing needs it to predict from a saved model.
"""
