-- The foreign keys of the shop, for the target. The server checks every row.

ALTER TABLE addresses ADD CONSTRAINT address_user FOREIGN KEY (user_id) REFERENCES users (id);
ALTER TABLE categories ADD CONSTRAINT category_parent FOREIGN KEY (parent_id) REFERENCES categories (id);
ALTER TABLE products ADD CONSTRAINT product_category FOREIGN KEY (category_id) REFERENCES categories (id);
ALTER TABLE product_tags
  ADD CONSTRAINT tagged_product FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE,
  ADD CONSTRAINT tagged_tag FOREIGN KEY (tag_id) REFERENCES tags (id) ON DELETE CASCADE;
ALTER TABLE orders
  ADD CONSTRAINT order_user FOREIGN KEY (user_id) REFERENCES users (id),
  ADD CONSTRAINT order_address FOREIGN KEY (address_id) REFERENCES addresses (id) ON DELETE SET NULL;
ALTER TABLE items
  ADD CONSTRAINT item_order FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE,
  ADD CONSTRAINT item_product FOREIGN KEY (product_id) REFERENCES products (id);
ALTER TABLE payments ADD CONSTRAINT payment_order FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE;
ALTER TABLE reviews
  ADD CONSTRAINT review_user FOREIGN KEY (user_id) REFERENCES users (id),
  ADD CONSTRAINT review_product FOREIGN KEY (product_id) REFERENCES products (id);
