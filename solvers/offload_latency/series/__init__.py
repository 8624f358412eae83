"""Series program: an exact dynamic program over the spine of an offload problem."""
