"""What a program that others reach needs: a place to listen, an advert that stays true, and an end in order."""
