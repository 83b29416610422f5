-- The first rows of one shard. All shards have the same ids; e-mail addresses and order numbers are unique.

INSERT INTO users (email, name, created)
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300)
SELECT CONCAT('user', i, '@', DATABASE(), '.', @@server_id, '.example'), CONCAT('José ', i), '2025-05-05 05:05:05.555' FROM n;

INSERT INTO addresses (user_id, city) SELECT id, '北京' FROM users;
INSERT INTO addresses (user_id, city) SELECT id, 'Zürich' FROM users WHERE id % 3 = 0;

INSERT INTO categories (id, parent_id, name)
VALUES (1, NULL, 'all'), (2, 1, 'clothes'), (3, 1, 'books'), (4, 2, 'shirts'), (5, 2, 'shoes'), (6, 3, 'novels');

INSERT INTO products (category_id, name, price, attributes)
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 60)
SELECT 2 + i % 5, CONCAT('product ', i, ' of ', DATABASE(), ' ', @@server_id), i * 1.25,
  CONCAT('{"colour": "', ELT(1 + i % 3, 'red', 'blue', 'grün'), '", "sizes": [', i, ', 2.50]}') FROM n;

INSERT INTO tags (name) VALUES ('new'), ('sale'), ('gift'), ('last one');
INSERT INTO product_tags SELECT p.id, t.id FROM products p JOIN tags t ON p.id % 4 >= t.id;

INSERT INTO orders (user_id, address_id, number, state)
SELECT u.id, IF(u.id % 7 = 0, NULL, a.id), SUBSTR(SHA2(CONCAT(u.email, a.id), 256), 1, 16), 'new'
FROM users u JOIN addresses a ON a.user_id = u.id;

INSERT INTO items (order_id, line, product_id, quantity, price)
SELECT o.id, p.id % 2 + 1, p.id, 1 + o.id % 3, p.price FROM orders o JOIN products p ON p.id IN (1 + o.id % 60, 1 + (o.id + 1) % 60);

INSERT INTO payments (order_id, amount, receipt)
SELECT order_id, amount, UNHEX(LEFT(SHA2(order_id, 256), 32))
FROM (SELECT order_id, SUM(total) AS amount FROM items WHERE order_id % 2 = 0 GROUP BY order_id) AS paid;

INSERT INTO reviews (user_id, product_id, title, body)
SELECT u.id, 1 + u.id % 60, 'très bien', '尺寸很合适' FROM users u;

INSERT INTO visits SELECT id, '/', created FROM users;
INSERT INTO visits SELECT id, '/', created FROM users WHERE id % 2 = 0;

INSERT INTO moves (day, product_id, quantity)
SELECT IF(id % 2 = 0, '2025-12-31', '2026-01-01'), id, 100 FROM products;
